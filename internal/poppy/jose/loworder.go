package jose

import "crypto/ed25519"

// isLowOrder reports whether key encodes a point of Ed25519 whose order is at most 8,
// or encodes any point by a y of the field's size or more. Under a key of low order
// one signature verifies for many messages; a second encoding would give a key a
// second thumbprint. The top bit is the sign of x, which both rules leave aside.
func isLowOrder(key ed25519.PublicKey) bool {
	var y [ed25519.PublicKeySize]byte
	copy(y[:], key)
	y[31] &= 0x7F
	if reachesPrime(y) {
		return true
	}
	switch y {
	case [32]byte{}, // order 4
		[32]byte{1}, // the identity
		[32]byte{
			0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
			0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
		}, // order 8
		[32]byte{
			0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
			0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
		}, // order 8
		minusOne(): // order 2
		return true
	}
	return false
}

// reachesPrime reports whether the little-endian y is 2^255-19 or more.
func reachesPrime(y [32]byte) bool {
	for i := 1; i < 31; i++ {
		if y[i] != 0xFF {
			return false
		}
	}
	return y[31] == 0x7F && y[0] >= 0xED
}

// minusOne is the encoding of y = 2^255-20.
func minusOne() [32]byte {
	y := [32]byte{0: 0xEC, 31: 0x7F}
	for i := 1; i < 31; i++ {
		y[i] = 0xFF
	}
	return y
}
