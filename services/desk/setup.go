package desk

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Options say whose desk it is and where.
type Options struct {
	Dev     string // data directory of a running `poppyfield dev`
	API     string // origin of the admin API
	KeyFile string
	Company string // "companies/cmp_…", or with Dev a domain or slug
	Trust   []string
	Person  string
}

// mistake is an error of whoever called; the process ends with status 2.
type mistake struct{ error }

// ExitCode implements what main looks for.
func (mistake) ExitCode() int { return 2 }

// Unwrap gives the error below.
func (m mistake) Unwrap() error { return m.error }

func wrong(format string, args ...any) error { return mistake{fmt.Errorf(format, args...)} }

// devSetup is what a running `poppyfield dev` says of itself in its ready file.
type devSetup struct {
	APIOrigin   string `json:"api_origin"`
	CAFile      string `json:"ca_file"`
	OperatorKey string `json:"operator_api_key"`
	DemoDomain  string `json:"demo_domain"`
	DemoCompany string `json:"demo_company"`
	DemoKey     string `json:"demo_company_api_key"`
}

// connect finds the API, a key and the Company.
func connect(ctx context.Context, o Options) (api *client, company string, err error) {
	if o.Person == "" {
		return nil, "", wrong("--as is missing: the name that the Company knows you by")
	}
	if o.Dev != "" {
		return connectDev(ctx, o)
	}
	u, err := url.Parse(o.API)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, "", wrong("--api: an https origin is wanted, or --dev DIR")
	}
	if o.KeyFile == "" || !strings.HasPrefix(o.Company, "companies/") {
		return nil, "", wrong("--key-file and --company companies/… belong to --api")
	}
	key, err := os.ReadFile(o.KeyFile)
	if err != nil {
		return nil, "", mistake{err}
	}
	roots, err := loadRoots(o.Trust)
	return newClient(u.Scheme+"://"+u.Host, strings.TrimSpace(string(key)), roots), o.Company, err
}

func connectDev(ctx context.Context, o Options) (*client, string, error) {
	file := filepath.Join(o.Dev, "ready.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, "", wrong("no running `poppyfield dev` found in %s", o.Dev)
	}
	var d devSetup
	if err := json.Unmarshal(raw, &d); err != nil || d.APIOrigin == "" {
		return nil, "", wrong("%s names no API", file)
	}
	roots, err := loadRoots(append([]string{d.CAFile}, o.Trust...))
	if err != nil {
		return nil, "", err
	}
	name := strings.ToLower(o.Company)
	host, _, err := net.SplitHostPort(d.DemoDomain)
	if err != nil {
		host = d.DemoDomain
	}
	if name == "" || name == d.DemoDomain || name == host || o.Company == d.DemoCompany {
		if d.DemoKey == "" {
			return nil, "", wrong("the dev installation runs no demo Company: name another one")
		}
		return newClient(d.APIOrigin, d.DemoKey, roots), d.DemoCompany, nil
	}
	api := newClient(d.APIOrigin, d.OperatorKey, roots)
	company, err := findCompany(ctx, api, o.Company)
	return api, company, err
}

// findCompany looks for the Company that an operator means.
func findCompany(ctx context.Context, api *client, named string) (string, error) {
	if strings.HasPrefix(named, "companies/") {
		return named, nil
	}
	for token := ""; ; {
		var page struct {
			Companies     []struct{ Name, Slug string } `json:"companies"`
			NextPageToken string                        `json:"next_page_token"`
		}
		if err := api.get(ctx, "companies", url.Values{"page_size": {"200"}, "page_token": {token}}, &page); err != nil {
			return "", err
		}
		for _, c := range page.Companies {
			if c.Slug == named {
				return c.Name, nil
			}
			var domains struct {
				Domains []struct{ Domain string } `json:"domains"`
			}
			if err := api.get(ctx, c.Name+"/domains", nil, &domains); err != nil {
				return "", err
			}
			for _, d := range domains.Domains {
				if d.Domain == strings.ToLower(named) {
					return c.Name, nil
				}
			}
		}
		if token = page.NextPageToken; token == "" {
			return "", wrong("no Company has the domain or the slug %q", named)
		}
	}
}

// loadRoots returns the system's CAs with those of files; nil for the system's alone.
func loadRoots(files []string) (*x509.CertPool, error) {
	if len(files) == 0 {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, file := range files {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, mistake{err}
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, mistake{errors.New(file + " holds no certificate")}
		}
	}
	return pool, nil
}
