package discovery

import (
	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
)

// The reasons of documents that can't be used. They are not wire codes of the
// protocol: a reader shows them to whoever publishes the document.
const (
	// InvalidDocument is a document that breaks the form of section 3.
	InvalidDocument problem.Reason = "INVALID_DOCUMENT"
	// UnsupportedVersion is a protocol_version whose major version is not ours.
	UnsupportedVersion problem.Reason = "UNSUPPORTED_PROTOCOL_VERSION"
	// DomainMismatch is a document that speaks for another domain than the one asked.
	DomainMismatch problem.Reason = "DOMAIN_MISMATCH"
	// IssuerMismatch is a pair of documents whose issuers differ.
	IssuerMismatch problem.Reason = "ISSUER_MISMATCH"
	// DomainNotListed is a domain that poppy_domains leaves out.
	DomainNotListed problem.Reason = "DOMAIN_NOT_LISTED"
	// NotPublished is an answer at the well-known URL that is no document at all.
	NotPublished problem.Reason = "NOT_PUBLISHED"
)

const (
	// protocol_version is a required string of the form major.minor.
	clauseVersionForm clause.ID = "poppy-0.1/3.1#1"
	// The agent stops at a major version it doesn't know.
	clauseVersionMajor clause.ID = "poppy-0.1/3.1#2"
	// organization.name is a required string.
	clauseName clause.ID = "poppy-0.1/3.1#3"
	// organization.domain equals the requested host, a leading "www." ignored.
	clauseDomain clause.ID = "poppy-0.1/3.1#4"
	// auth may be absent only from a web-only document.
	clauseAuth clause.ID = "poppy-0.1/3.1#6"
	// auth.issuer is an https URL.
	clauseIssuer clause.ID = "poppy-0.1/3.1#7"
	// auth.direct.scopes is a list of strings.
	clauseDirect clause.ID = "poppy-0.1/3.1#8"
	// auth.device.scopes is a list of strings.
	clauseDevice clause.ID = "poppy-0.1/3.1#9"
	// auth.mediated.endpoint is an https URL.
	clauseMediated clause.ID = "poppy-0.1/3.1#10"
	// auth.mediated.fields is a list of {name, label, secret}.
	clauseMediatedFields clause.ID = "poppy-0.1/3.1#11"
	// auth.mediated.scopes is a list of strings.
	clauseMediatedScopes clause.ID = "poppy-0.1/3.1#12"
	// auth.custom_scopes maps a scope to a description for the User.
	clauseCustomScopes clause.ID = "poppy-0.1/3.1#13"
	// No custom scope starts with "poppy:".
	clauseReservedScope clause.ID = "poppy-0.1/3.1#14"
	// agent.protocols lists {type, endpoint}.
	clauseProtocols clause.ID = "poppy-0.1/3.1#16"
	// agent.protocols has one or more entries.
	clauseProtocolCount clause.ID = "poppy-0.1/7.1#1"
	// web.browser_session_endpoint is an https URL.
	clauseWeb clause.ID = "poppy-0.1/3.1#17"
	// The cookie's name and hosts are the Company's choice.
	clauseBrowserCookie clause.ID = "poppy-0.1/5#34"
	// return_to is on the Company's domain.
	clauseReturnTo clause.ID = "poppy-0.1/5#30"
	// apis lists {type, url}.
	clauseAPIs clause.ID = "poppy-0.1/3.1#19"
	// Each API's type is openapi or mcp.
	clauseAPIType clause.ID = "poppy-0.1/6#2"
	// An mcp entry's url is its resource.
	clauseMCPResource clause.ID = "poppy-0.1/3.1#24"
	// At least one of agent, apis and web is present.
	clauseSomething clause.ID = "poppy-0.1/3.1#20"
	// The name of somebody else's extension starts with a domain.
	clauseExtensionName clause.ID = "poppy-0.1/3.3#5"
	// An extension entry has a version, a string.
	clauseExtensionVersion clause.ID = "poppy-0.1/3.3#6"
	// A request that needs an extension may be refused where the agent doesn't list it.
	clauseExtensionRequired clause.ID = "poppy-0.1/3.3#12"
	// An operations entry has version and endpoint.
	clauseOperations clause.ID = "poppy-0.1/3.3#3"
	// The metadata's issuer is identical to auth.issuer.
	clauseIssuerMatch clause.ID = "poppy-0.1/3.2#6"
	// poppy_domains has organization.domain.
	clauseListed clause.ID = "poppy-0.1/3.2#7"
	// The metadata has token_endpoint.
	clauseTokenEndpoint clause.ID = "poppy-0.1/3.2#11"
	// The metadata has revocation_endpoint.
	clauseRevocationEndpoint clause.ID = "poppy-0.1/3.2#12"
	// auth.direct needs authorization_endpoint.
	clauseAuthorizationEndpoint clause.ID = "poppy-0.1/3.2#13"
	// auth.device needs device_authorization_endpoint.
	clauseDeviceEndpoint clause.ID = "poppy-0.1/3.2#14"
	// poppy_domains is a list of domains.
	clausePoppyDomains clause.ID = "poppy-0.1/3.2#9"
	// organization.domain is lower case, without "www.", an IDN as A-label.
	clauseDomainForm clause.ID = "poppy-0.1/3.1#d1"
)
