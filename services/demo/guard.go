package demo

import (
	"errors"
	"net/http"
)

var errNoOrder = errors.New("the customer has no order of that number")

// guard asks Poppyfield for every request to an API of the shop.
type guard struct {
	api     *adminClient // with the Company's own key
	company string
	url     string // of the API, as it is listed
}

// verdict is what is said of a request.
type verdict struct {
	Allowed bool          `json:"allowed"`
	Status  int           `json:"status"`
	Headers []headerField `json:"headers"`
	Body    string        `json:"body"`
	Session struct {
		Account string `json:"account"`
	} `json:"session"`
}

type headerField struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// judge asks about r. Where it fails nobody knows, and r must not be served.
func (g *guard) judge(r *http.Request) (verdict, error) {
	ask := struct {
		Method  string        `json:"method"`
		URL     string        `json:"url"`
		Headers []headerField `json:"headers"`
	}{Method: r.Method, URL: g.url}
	for _, name := range []string{"Authorization", "DPoP"} {
		for _, value := range r.Header.Values(name) {
			ask.Headers = append(ask.Headers, headerField{name, value})
		}
	}
	var v verdict
	err := g.api.call(r.Context(), http.MethodPost, "/v1/"+g.company+":verifyRequest", nil, ask, &v)
	return v, err
}
