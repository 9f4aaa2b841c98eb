// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cstdlib>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"

namespace trireme::net {
namespace {

constexpr size_t kShortest = 16;
constexpr size_t kLongest = 1024;

std::string random_hex(size_t bytes) {
  std::string raw = random_bytes(bytes);
  std::string out;
  for (char c : raw) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  OPENSSL_cleanse(raw.data(), raw.size());
  return out;
}

}  // namespace

std::optional<std::string> process_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

Secret::Secret(std::string_view text, std::string_view where) {
  constexpr std::string_view kSpace = " \t\r\n";
  auto first = text.find_first_not_of(kSpace);
  if (first != std::string_view::npos)
    bytes_ = text.substr(first, text.find_last_not_of(kSpace) - first + 1);
  check<UsageError>(bytes_.size() >= kShortest && bytes_.size() <= kLongest,
                    "{} holds {} bytes; a secret has {} to {}. Make one with: openssl rand -hex 32",
                    where, bytes_.size(), kShortest, kLongest);
}

Secret::Secret(const Secret&) = default;
Secret::Secret(Secret&& other) noexcept { bytes_.swap(other.bytes_); }
Secret& Secret::operator=(Secret other) noexcept {
  bytes_.swap(other.bytes_);
  return *this;
}
Secret::~Secret() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

std::string random_bytes(size_t bytes) {
  std::string out(bytes, '\0');
  for (size_t got = 0; got < bytes;) {
    ssize_t n = ::getrandom(out.data() + got, bytes - got, 0);
    if (n < 0 && errno == EINTR) continue;
    check<ResourceError>(n > 0, "the system does not provide random numbers: {}", errno_text());
    got += static_cast<size_t>(n);
  }
  return out;
}

std::string generate_secret() { return random_hex(32); }
std::string random_token() { return random_hex(16); }

Secret read_secret_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  check<UsageError>(static_cast<bool>(fd), "cannot open the secret file {}: {}", path,
                    errno_text());
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) fail<ResourceError>("cannot stat {}: {}", path, errno_text());
  check<UsageError>(S_ISREG(st.st_mode), "the secret file {} is not a regular file", path);
  check<UsageError>(st.st_uid == ::geteuid() || st.st_uid == 0,
                    "the secret file {} belongs to user {}, not to you: chown it", path, st.st_uid);
  check<UsageError>(
      (st.st_mode & 077) == 0,
      "others than you may read or write the secret file {} (mode {:04o}): chmod 600 {}", path,
      st.st_mode & 07777, path);
  char text[kLongest + 64];
  size_t size = 0;
  while (size < sizeof text) {
    ssize_t n = ::read(fd.get(), text + size, sizeof text - size);
    if (n < 0 && errno == EINTR) continue;
    check<ResourceError>(n >= 0, "cannot read {}: {}", path, errno_text());
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  Secret secret(std::string_view(text, size), path);
  OPENSSL_cleanse(text, sizeof text);
  return secret;
}

Admission load_admission(const Getenv& env) {
  auto value = [&](const char* name) { return env(name).value_or(""); };
  std::string file = value("TRIREME_SECRET_FILE");
  std::string insecure = value("TRIREME_INSECURE");
  check<UsageError>(insecure.empty() || insecure == "0" || insecure == "1",
                    "TRIREME_INSECURE='{}': write 1, or leave it out", insecure);
  check<UsageError>(
      file.empty() || insecure != "1",
      "TRIREME_SECRET_FILE={} and TRIREME_INSECURE=1 contradict each other: unset one", file);
  if (!file.empty()) return {read_secret_file(file), false, "TRIREME_SECRET_FILE=" + file};
  if (insecure == "1") return {std::nullopt, true, "TRIREME_INSECURE=1"};
  std::string home = value("HOME");
  std::string path = home.empty() ? "" : home + "/.config/trireme/secret";
  if (!path.empty() && ::access(path.c_str(), F_OK) == 0)
    return {read_secret_file(path), false, path};
  return {std::nullopt, false,
          home.empty() ? "TRIREME_SECRET_FILE is not set and there is no HOME"
                       : "TRIREME_SECRET_FILE is not set and there is no " + path};
}

}  // namespace trireme::net
