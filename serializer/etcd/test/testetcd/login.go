package testetcd

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// DemandLogin makes the users root and orderly, whose passwords are root and secret,
// and switches authentication on. orderly may read and write in the namespace.
func DemandLogin(ctx context.Context, c *clientv3.Client, namespace string) error {
	end := clientv3.GetPrefixRangeEnd(namespace)
	return errors.Join(
		second(c.UserAdd(ctx, "root", "root")),
		second(c.UserGrantRole(ctx, "root", "root")),
		second(c.RoleAdd(ctx, "orderly")),
		second(c.RoleGrantPermission(ctx, "orderly", namespace, end, clientv3.PermissionType(clientv3.PermReadWrite))),
		second(c.UserAdd(ctx, "orderly", "secret")),
		second(c.UserGrantRole(ctx, "orderly", "orderly")),
		second(c.AuthEnable(ctx)),
	)
}

func second[T any](_ T, err error) error { return err }
