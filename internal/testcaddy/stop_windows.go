package testcaddy

func (s *Server) goOn() {} // processes cannot be stopped here
