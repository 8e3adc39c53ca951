// Package proto holds what is generated from the protos and isn't Go.
package proto

import _ "embed"

//go:embed gen/openapi/poppyfield.swagger.yaml
var openAPI string

// OpenAPI returns the OpenAPI 2.0 document of the admin API, in YAML.
func OpenAPI() []byte { return []byte(openAPI) }
