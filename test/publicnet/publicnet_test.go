package publicnet_test

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/publicnet"
)

func TestMain(m *testing.M) {
	os.Exit(publicnet.Main(m, publicnet.Hosts{publicnet.Outside: {"agent.outside.test"}}, nil))
}

func TestMain_NamesLeadToAddressesThatCanBeServed(t *testing.T) {
	r := net.Resolver{PreferGo: true}
	found, err := r.LookupHost(t.Context(), "agent.outside.test")
	require.NoError(t, err)
	require.Equal(t, []string{publicnet.Outside}, found)

	l, err := net.Listen("tcp", net.JoinHostPort(publicnet.Outside, "443"))
	require.NoError(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", "agent.outside.test:443")
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func TestMain_NothingElseIsReached(t *testing.T) {
	_, err := net.Dial("tcp", "1.1.1.1:443")
	require.ErrorContains(t, err, "unreachable")
}
