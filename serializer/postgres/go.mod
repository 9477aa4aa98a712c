module github.com/orderly-http/caddy-orderly/serializer/postgres

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.13.0
	github.com/orderly-http/caddy-orderly v0.0.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/orderly-http/caddy-orderly => ../..
