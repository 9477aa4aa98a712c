package redis

import _ "github.com/anishathalye/porcupine"
