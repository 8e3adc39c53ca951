package app

// ParseProvider reads a provider's discovery document: its issuer, its three endpoints,
// and what is wrong with those.
func ParseProvider(raw []byte) (issuer string, endpoints [3]string, fault string, err error) {
	m, err := parseProvider(raw)
	return m.Issuer, [3]string{m.AuthorizationEndpoint, m.TokenEndpoint, m.JWKSURI}, m.checkEndpoints(), err
}

// CountKeys counts the usable keys of a JWK set.
func CountKeys(raw []byte) (int, string) { return countKeys(raw) }
