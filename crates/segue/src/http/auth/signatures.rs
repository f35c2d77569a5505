//! Verifies the signatures of tokens with the library that also encrypts our connections.
//!
//! Only algorithms with a public key are known here, so no public key can be mistaken for a shared secret.
//! Nothing is signed.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use signature::Verifier;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: |algorithm, key| verifier(*algorithm, key),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes this the verifier of tokens in this process.
pub(super) fn install() {
    // The second time it is installed already.
    let _ = PROVIDER.install_default();
}

fn verifier(algorithm: Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if algorithm.family() != key.family() || how(algorithm).is_none() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(ContentData { algorithm, key: key.clone() }))
}

/// How a signature is verified.
enum How {
    Rsa(&'static RsaParameters),
    Other(&'static dyn VerificationAlgorithm),
}

fn how(algorithm: Algorithm) -> Option<How> {
    Some(match algorithm {
        Algorithm::RS256 => How::Rsa(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => How::Rsa(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => How::Rsa(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => How::Rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => How::Rsa(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => How::Rsa(&RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => How::Other(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => How::Other(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => How::Other(&ED25519),
        _ => return None,
    })
}

struct ContentData {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for ContentData {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let held = match (how(self.algorithm), self.key.kind()) {
            (Some(How::Rsa(how)), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(how, message, signature)
            }
            (Some(How::Other(how)), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(how, key).verify(message, signature)
            }
            _ => return Err(signature::Error::new()),
        };
        held.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for ContentData {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
