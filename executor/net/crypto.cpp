#include "executor/net/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "models/base/check.h"

namespace orrery::executor {
namespace {

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* raw(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

/// libcrypto fails only without memory or with a broken installation.
void must(int status) { ORRERY_CHECK(status == 1, "libcrypto failed"); }

}  // namespace

void fill_random(std::span<std::byte> out) {
  must(RAND_bytes(raw(out), static_cast<int>(out.size())));
}

Bytes32 hmac(std::string_view key, std::initializer_list<std::span<const std::byte>> parts) {
  using Digest = std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)>;
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> secret(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_HMAC, nullptr,
                                   reinterpret_cast<const unsigned char*>(key.data()), key.size()),
      EVP_PKEY_free);
  const Digest digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  ORRERY_CHECK(secret && digest, "libcrypto has no HMAC");
  must(EVP_DigestSignInit(digest.get(), nullptr, EVP_sha256(), nullptr, secret.get()));
  for (const std::span<const std::byte> part : parts) {
    must(EVP_DigestSignUpdate(digest.get(), raw(part), part.size()));
  }
  Bytes32 out{};
  std::size_t size = out.size();
  must(EVP_DigestSignFinal(digest.get(), raw(std::span<std::byte>(out)), &size));
  return out;
}

bool equal_secrets(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

struct Authenticator::Context {
  std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> cipher{EVP_CIPHER_CTX_new(),
                                                                    EVP_CIPHER_CTX_free};
};

Authenticator::Authenticator(const Bytes32& key) : context_(std::make_unique<Context>()) {
  must(EVP_EncryptInit_ex(context_->cipher.get(), EVP_aes_256_gcm(), nullptr,
                          raw(std::span<const std::byte>(key)), nullptr));
}
Authenticator::~Authenticator() = default;
Authenticator::Authenticator(Authenticator&&) noexcept = default;
Authenticator& Authenticator::operator=(Authenticator&&) noexcept = default;

Mac Authenticator::mac(Part part, std::uint64_t number,
                       std::initializer_list<std::span<const std::byte>> parts) const {
  EVP_CIPHER_CTX* cipher = context_->cipher.get();
  std::array<std::byte, 12> nonce{};
  std::memcpy(nonce.data(), &part, sizeof part);
  std::memcpy(nonce.data() + sizeof part, &number, sizeof number);
  must(EVP_EncryptInit_ex(cipher, nullptr, nullptr, nullptr,
                          raw(std::span<const std::byte>(nonce))));
  constexpr std::size_t kPiece = std::size_t{1} << 30;  // libcrypto counts in int.
  int written = 0;
  for (std::span<const std::byte> rest : parts) {
    while (!rest.empty()) {
      const std::span<const std::byte> piece = rest.first(std::min(rest.size(), kPiece));
      must(
          EVP_EncryptUpdate(cipher, nullptr, &written, raw(piece), static_cast<int>(piece.size())));
      rest = rest.subspan(piece.size());
    }
  }
  Mac out{};
  must(EVP_EncryptFinal_ex(cipher, raw(std::span<std::byte>(out)), &written));
  must(
      EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(out.size()), out.data()));
  return out;
}

}  // namespace orrery::executor
