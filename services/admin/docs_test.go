package admin_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/admin/method"
)

// The guide's table of methods is what the descriptors say.
func TestDocs_ListEveryMethod(t *testing.T) {
	raw, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	child := regexp.MustCompile(`/\*`)
	for _, m := range table(t).Methods() {
		path := star.ReplaceAllStringFunc(m.HTTP.Template, func(v string) string {
			name := strings.Replace(star.FindStringSubmatch(v)[1], "*", "{c}", 1)
			return child.ReplaceAllLiteralString(name, "/{id}")
		})
		permission := "`" + m.Permission + "`"
		if m.Audience == adminv1.Audience_AUDIENCE_OPERATOR {
			permission += " (operators)"
		}
		if m.Audience == adminv1.Audience_AUDIENCE_SELF {
			permission = "any valid key"
		}
		rest := "`" + m.HTTP.Verb + " " + path + "`"
		if m.Stream {
			rest = "gRPC only"
		}
		row := "| " + rest + " | " + string(m.Service.Name()) + "." + string(m.Desc.Name()) + " | " + permission + " |"
		require.Contains(t, string(raw), row)
		for _, door := range m.Also {
			also := "| `" + strings.Replace(door, "*", "{c}", 1) + "` | " + string(m.Service.Name()) + "." + string(m.Desc.Name()) + " | " + permission + " |"
			if !method.IsPath(door) {
				also = strings.Replace(also, "`/", "gRPC `", 1)
			}
			require.Contains(t, string(raw), also)
		}
	}
}
