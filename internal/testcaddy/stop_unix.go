//go:build unix

package testcaddy

import "syscall"

// Stop stops the process without ending it, as a frozen container is stopped.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatalf("stopping caddy: %v", err)
	}
}

// Continue lets a stopped process go on.
func (s *Server) Continue() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatalf("continuing caddy: %v", err)
	}
}

// goOn lets the process go on, should it be stopped.
func (s *Server) goOn() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }
