// Package egress is the only way from this product to a URL that somebody else
// chose: client documents and key sets of Personal Agents, published Poppy
// documents of Companies, webhook endpoints.
//
// It owns the address guard (which names, addresses and ports may be reached),
// the dialer that connects to checked addresses alone, and the limits on time
// and size of an exchange. Every error is an [Error] whose Detail may be shown to
// a Company or a Personal Agent: it never tells an address that a name resolved
// to, since a resolver of ours may see more than the public one does.
//
// It must not know what is fetched or why: the meaning of a document, retry
// schedules and caching belong to its callers.
//
// The policy in short:
//
//   - https only, TLS 1.2 or later, certificates always verified;
//   - any port but 0: agents and endpoints on ports other than 443 are usual, and
//     the address check rather than the port keeps the inside out;
//   - an address has to be globally reachable by the IANA special-purpose
//     registries; names are resolved here and only addresses that passed are dialled;
//   - redirects are never followed by Fetch, Post and Send; proxies of the environment
//     are not used; compressed answers are refused;
//   - for development, names listed as dev hosts, and nothing else, reach loopback.
package egress
