package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// put returns a part of a transaction, as get and erase do.
func put(key, value string, lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease}}}
}

func get(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// erase deletes a key, or if end is given, all keys from key up to end.
func erase(key, end string) *pb.RequestOp {
	r := &pb.DeleteRangeRequest{Key: []byte(key)}
	if end != "" {
		r.RangeEnd = []byte(end)
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
}

func within(txn *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn}}
}

// allOf reads all keys that begin with a prefix.
func allOf(prefix string) *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte(prefix), RangeEnd: []byte(prefixEnd(prefix))}
}

// keyOf reads one key without its value.
func keyOf(key string) *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte(key), KeysOnly: true}
}

// serializable reports whether a single member may answer a transaction from its own
// state.
func serializable(txn *pb.TxnRequest) bool {
	return txn.GetSuccess()[0].GetRequestRange().GetSerializable()
}

// createdAt is the condition that a key was created at a revision. For revision 0, it is
// that the key does not exist.
func createdAt(key string, rev int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev},
	}
}

// prefixEnd is the first key after all keys with a prefix. All prefixes here end with a
// slash or a hyphen.
func prefixEnd(prefix string) string {
	last := len(prefix) - 1
	return prefix[:last] + string(prefix[last]+1)
}

// watchOf watches all keys that begin with a prefix, except for some kinds of events.
func watchOf(prefix string, except ...pb.WatchCreateRequest_FilterType) *pb.WatchCreateRequest {
	return &pb.WatchCreateRequest{Key: []byte(prefix), RangeEnd: []byte(prefixEnd(prefix)), Filters: except}
}

func firstOf(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return new(mvccpb.KeyValue)
	}
	return kvs[0]
}
