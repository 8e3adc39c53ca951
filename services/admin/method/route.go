package method

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protowire"
)

// Route is the HTTP request that a method answers.
type Route struct {
	Verb string
	// Template is the path with its variable, as in the proto.
	Template string
	// Body is the request's field that the body holds; "*" for all fields, empty for no body.
	Body string
	// Variable is the path of the field that the path holds; empty for none.
	Variable string

	match *regexp.Regexp
}

var template = regexp.MustCompile(`^(/[a-zA-Z0-9/]*)(?:\{([a-z_.]+)=([a-zA-Z0-9/*]+)\})?((?:/[a-zA-Z0-9]+)*)(:[a-zA-Z]+)?$`)

func parseRoute(rule *annotations.HttpRule) (Route, string, error) {
	r := Route{Body: rule.GetBody()}
	switch p := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		r.Verb, r.Template = http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		r.Verb, r.Template = http.MethodPost, p.Post
	case *annotations.HttpRule_Patch:
		r.Verb, r.Template = http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		r.Verb, r.Template = http.MethodDelete, p.Delete
	default:
		return Route{}, "", errors.New("HTTP route with a verb that isn't used here")
	}
	if len(rule.GetAdditionalBindings()) > 0 || rule.GetResponseBody() != "" {
		return Route{}, "", errors.New("HTTP route with more than one form")
	}
	parts := template.FindStringSubmatch(r.Template)
	if parts == nil {
		return Route{}, "", fmt.Errorf("HTTP path %s is of an unknown form", r.Template)
	}
	var re strings.Builder
	re.WriteString("^" + regexp.QuoteMeta(parts[1]))
	for i, segment := range strings.Split(parts[3], "/") {
		if i > 0 {
			re.WriteByte('/')
		}
		if segment == "*" {
			re.WriteString("[^/]+")
			continue
		}
		re.WriteString(regexp.QuoteMeta(segment))
	}
	re.WriteString(regexp.QuoteMeta(parts[4]+parts[5]) + "$")
	var err error
	if r.match, err = regexp.Compile(re.String()); err != nil {
		return Route{}, "", fmt.Errorf("HTTP path %s: %w", r.Template, err)
	}
	r.Variable = parts[2]
	return r, r.Variable, nil
}

// Find returns the method that answers verb on path. Where there is none, allow
// holds the verbs that path does take; empty: there is no such path.
func (t *Table) Find(verb, path string) (m *Method, allow []string) {
	var loose *Method
	for _, m := range t.methods {
		if m.Stream || !m.HTTP.match.MatchString(path) {
			continue
		}
		// A wildcard also takes what a custom verb's path says more exactly.
		if custom := customVerb(m.HTTP.Template); custom == "" && strings.Contains(lastSegment(path), ":") {
			if m.HTTP.Verb == verb {
				loose = m
			}
			continue
		}
		if m.HTTP.Verb == verb {
			return m, nil
		}
		if !slices.Contains(allow, m.HTTP.Verb) {
			allow = append(allow, m.HTTP.Verb)
		}
	}
	if len(allow) == 0 && loose != nil {
		return loose, nil
	}
	slices.Sort(allow)
	return nil, allow
}

func customVerb(template string) string {
	_, verb, _ := strings.Cut(template[strings.LastIndexByte(template, '}')+1:], ":")
	return verb
}

func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func number(raw []byte) string {
	n, _, size := protowire.ConsumeTag(raw)
	if size < 0 {
		return "?"
	}
	return strconv.Itoa(int(n))
}
