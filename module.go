// Package orderly is a Caddy plugin for requests that need a name or must wait
// their turn.
//
//   - unique_ids (package modules/uniqueids) gives every request its IDs, made
//     when first asked for.
//   - serialize (package modules/serialize) lets one request at a time into a
//     location. The others wait in the order in which they came.
//   - once (package modules/once) lets a request that comes twice with one idempotency key
//     through once, and answers the other by the first one's answer.
//
// The work is done by two libraries that know nothing of Caddy: uniqueid and
// serializer. The packages under modules turn configuration and requests into
// calls of theirs. This package imports them, so that all is registered, and
// gives the directives their place in a Caddyfile.
package orderly
