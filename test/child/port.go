package child

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort returns a TCP port of 127.0.0.1 that is free now, for a server that is told
// its port. It lies below the range from which the system gives ports to outgoing
// connections: one of those could take it before the server does.
func FreePort() (int, error) {
	for range 200 {
		port := 12000 + rand.IntN(20000)
		l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue // in use
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port between 12000 and 32000")
}
