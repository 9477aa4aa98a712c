module github.com/orderly-http/caddy-orderly/bench/ids

go 1.26.0

require (
	github.com/gofrs/uuid/v5 v5.5.1
	github.com/google/uuid v1.6.0
	github.com/jaevor/go-nanoid v1.4.0
	github.com/muyo/sno v1.2.1
	github.com/oklog/ulid/v2 v2.1.2
	github.com/orderly-http/caddy-orderly v0.0.0
	github.com/rogpeppe/fastuuid v1.2.0
	github.com/rs/xid v1.6.0
	github.com/segmentio/ksuid v1.0.4
	github.com/sony/sonyflake/v2 v2.2.0
)

require golang.org/x/sys v0.48.0 // indirect

replace github.com/orderly-http/caddy-orderly => ../../
