package egress

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSend_SendsWhatItIsGiven(t *testing.T) {
	ca := newCA(t)
	s := newSite(t, ca, "login.example", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"method":%q,"body":%q,"accept":%q,"type":%q,"auth":%q,"host":%q,"length":%d}`, r.Method, body,
			r.Header.Get("Accept"), r.Header.Get("Content-Type"), r.Header.Get("Authorization"), r.Host, r.ContentLength)
	})
	c := newClient(t, ca, nil, s.dev())
	for method, want := range map[string]string{
		http.MethodPost: `{"method":"POST","body":"a=b","accept":"","type":"","auth":"Basic x","host":"login.example","length":3}`,
		http.MethodGet:  `{"method":"GET","body":"","accept":"","type":"","auth":"Basic x","host":"login.example","length":0}`,
	} {
		r, err := c.Send(t.Context(), SendRequest{
			Method: method, URL: "https://login.example/", Body: []byte("a=b"), Header: http.Header{"Authorization": {"Basic x"}, "Host": {"other.example"}},
		})
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, r.Status)
		require.JSONEq(t, want, string(r.Body))
	}
	for _, method := range []string{"", "get", http.MethodPut, http.MethodHead, http.MethodConnect} {
		_, err := c.Send(t.Context(), SendRequest{Method: method, URL: "https://login.example/"})
		require.Equal(t, InvalidURL, KindOf(err), method)
	}
}
