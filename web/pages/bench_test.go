package pages_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/language"

	"github.com/poppyfield/poppyfield/web/pages"
	"github.com/poppyfield/poppyfield/web/pages/pagestest"
)

func BenchmarkWrite_Consent(b *testing.B) {
	r, err := pages.New()
	require.NoError(b, err)
	for _, s := range pagestest.Samples(base) {
		if s.Name != "consent" {
			continue
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := r.Write(httptest.NewRecorder(), http.StatusOK, language.Japanese, s.Brand, s.Page, pages.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		pages.Match("nl", "de-CH,fr;q=0.8")
	}
}
