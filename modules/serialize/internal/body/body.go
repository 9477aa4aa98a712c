package body

import (
	"errors"
	"net/http"
)

var ErrTooLarge, ErrFile = errors.New("x"), errors.New("y")

type Limits struct{ Memory, Disk int64 }
type Body struct{}

func Read(http.ResponseWriter, *http.Request, Limits) (*Body, error) { return nil, nil }
func (b *Body) Free()                                                {}
