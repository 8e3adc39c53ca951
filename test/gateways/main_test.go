package gateways_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/poppyfield/poppyfield/test/publicnet"
	"github.com/poppyfield/poppyfield/test/whole"
)

// apiHost is the API's name in docs/gateways.md.
const apiHost = "api.example.com"

func TestMain(m *testing.M) {
	hosts := publicnet.Hosts{publicnet.Proxy: {apiHost}, publicnet.Outside: whole.OutsideHosts()}
	os.Exit(publicnet.Main(m, hosts, buildCaddy))
}

// buildCaddy builds Caddy where the network still leads to its modules. Go keeps what it
// built, so that it takes long once a machine.
func buildCaddy() error {
	file, err := caddyBinary()
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-o", file, ".")
	cmd.Dir, cmd.Env = "caddy", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building Caddy: %w\n%s", err, out)
	}
	return nil
}

func caddyBinary() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "poppyfield", "bin", "caddy-of-the-tests"), err
}
