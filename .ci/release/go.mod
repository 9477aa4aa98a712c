// Makes a release, and a module proxy of it to try.
module github.com/orderly-http/caddy-orderly/ci/release

go 1.26.0

require golang.org/x/mod v0.41.0

require go.yaml.in/yaml/v3 v3.0.5
