package installation_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/natstest"
	"github.com/poppyfield/poppyfield/test/publicnet"
	"github.com/poppyfield/poppyfield/test/whole"
)

func TestMain(m *testing.M) {
	hosts := publicnet.Hosts{publicnet.Proxy: whole.ProxyHosts("noodles"), publicnet.Outside: whole.OutsideHosts()}
	os.Exit(publicnet.Main(m, hosts, func() error { return natstest.Build(context.Background()) }))
}

const outside = publicnet.Outside + ":443"

// place is an installation with a Company and an agent that has a Session.
type place struct {
	*whole.Installation
	outside *whole.Outside
	process *whole.ServeProcess
	company *whole.Company
	agent   *whole.Agent
}

func newPlace(t *testing.T, options whole.InstallationOptions) place {
	t.Helper()
	o := whole.StartOutside(t, outside)
	i := whole.Serve(t, o, options)
	c := whole.Onboard(t, i.API, o, whole.Spec{Slug: "noodles", Domain: "noodles.outside.test"})
	e, err := whole.FindCompany(t.Context(), i.Client, "https://"+c.Domain)
	require.NoError(t, err)
	p := place{Installation: i, outside: o, process: i.Processes["all"], company: c, agent: whole.NewAgent(t, o, i.Client, e)}
	require.NoError(t, p.agent.StartSession(t.Context()))
	return p
}
