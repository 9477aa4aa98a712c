// Package uniqueid makes and reads four kinds of IDs that name things without
// asking anybody.
//
//   - [TXID]: 96 bits that sort by time, 20 characters, after nginx's ngx_txid.
//   - [UniqueID]: Apache's UNIQUE_ID of mod_unique_id, in its three layouts.
package uniqueid
