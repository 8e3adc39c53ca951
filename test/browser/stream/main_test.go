package stream_test

import (
	"context"
	"os"
	"testing"

	"github.com/poppyfield/poppyfield/test/natstest"
	"github.com/poppyfield/poppyfield/test/publicnet"
	"github.com/poppyfield/poppyfield/test/whole"
)

func TestMain(m *testing.M) {
	hosts := publicnet.Hosts{publicnet.Proxy: whole.ProxyHosts("noodles"), publicnet.Outside: whole.OutsideHosts()}
	os.Exit(publicnet.Main(m, hosts, func() error { return natstest.Build(context.Background()) }))
}
