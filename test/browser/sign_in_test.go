package browser_test

import (
	"testing"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

func TestSignIn_InChromium(t *testing.T) {
	t.Run("sqlite", signIn)
}

func signIn(t *testing.T) {
	clausetest.Covers(t,
		"poppy-0.1/4.4#32", "poppy-0.1/4.5#7", "poppy-0.1/4.5#9", "poppy-0.1/4.5#10", "poppy-0.1/4.5#11", "poppy-0.1/4.5#15",
		"poppy-0.1/4.6#9", "poppy-0.1/4.6#10", "poppy-0.1/4.6#11", "poppy-0.1/4.6#16", "poppy-0.1/4.6#17",
	)
	clausetest.Refuses(t, "poppy-0.1/4.4#41", "poppy-0.1/4.5#d30", "poppy-0.1/4.6#11")
	runInChromium(t, "sign-in.mjs", []string{"agent.interop.test", "accounts.interop.test"})
}
