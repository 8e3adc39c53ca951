package jose

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
)

// Fits reports whether the key may verify signatures of alg: its type and curve are
// those of alg, and its own alg member, if any, names alg.
func (k *Key) Fits(alg Alg) bool {
	if k.alg != "" && k.alg != alg {
		return false
	}
	switch alg {
	case ES256:
		return k.ec != nil && k.ec.Curve.Params().BitSize == 256
	case ES384:
		return k.ec != nil && k.ec.Curve.Params().BitSize == 384
	case EdDSA:
		return k.ed != nil
	case PS256, RS256:
		return k.rsa != nil
	}
	return false
}

// Verify checks sig, in its JWS form, over signingInput. It fails with ErrKeyMismatch when the key
// does not fit alg and with ErrSignature when the signature does not verify.
func (k *Key) Verify(alg Alg, signingInput, sig []byte) error {
	return k.verify(alg, signingInput, sig, nil)
}

// VerifyJWS checks the signature of j with the key.
func (k *Key) VerifyJWS(j *JWS) error {
	return k.verify(j.Header.Alg, j.signingInput, j.signature, j.scratch)
}

func (k *Key) verify(alg Alg, signingInput, sig, scratch []byte) error {
	if !k.Fits(alg) {
		return ErrKeyMismatch
	}
	ok := false
	switch alg {
	case ES256:
		sum := sha256.Sum256(signingInput)
		ok = verifyECDSA(k.ec, sum[:], sig, scratch, 32)
	case ES384:
		sum := sha512.Sum384(signingInput)
		ok = verifyECDSA(k.ec, sum[:], sig, scratch, 48)
	case EdDSA:
		ok = len(sig) == ed25519.SignatureSize && ed25519.Verify(k.ed, signingInput, sig)
	case PS256:
		sum := sha256.Sum256(signingInput)
		// RFC7518/3.5: the salt is as long as the hash.
		opts := rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
		ok = rsa.VerifyPSS(k.rsa, crypto.SHA256, sum[:], sig, &opts) == nil
	case RS256:
		sum := sha256.Sum256(signingInput)
		ok = rsa.VerifyPKCS1v15(k.rsa, crypto.SHA256, sum[:], sig) == nil
	}
	if !ok {
		return ErrSignature
	}
	return nil
}

// verifyECDSA checks a signature in the form of RFC 7518 §3.4: r and s, each size
// bytes. The library wants them as an ASN.1 sequence, built in scratch.
func verifyECDSA(key *ecdsa.PublicKey, digest, sig, scratch []byte, size int) bool {
	if len(sig) != 2*size {
		return false
	}
	der := appendInteger(append(scratch[:0], 0x30, 0), sig[:size])
	der = appendInteger(der, sig[size:])
	der[1] = byte(len(der) - 2)
	return ecdsa.VerifyASN1(key, digest, der)
}

// appendInteger appends the DER form of the unsigned big-endian n.
func appendInteger(dst, n []byte) []byte {
	for len(n) > 1 && n[0] == 0 {
		n = n[1:]
	}
	pad := n[0] >> 7 // a set top bit would make the number negative
	dst = append(dst, 0x02, byte(len(n))+pad)
	if pad != 0 {
		dst = append(dst, 0)
	}
	return append(dst, n...)
}
