package jose

// SignatureForTest returns the decoded signature.
func (j *JWS) SignatureForTest() []byte { return j.signature }
