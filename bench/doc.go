// Package bench measures Orderly beside other servers on this machine, and its IDs beside other
// generators. benchstat sums up several rounds:
//
//	for i in 1 2 3 4 5; do go test -run - -bench . . ; done | tee new
//	benchstat -col /server new                          # servers beside each other
//	CADDY=/before/caddy go test -run - -bench Respond . # a Caddy of an earlier commit
package bench
