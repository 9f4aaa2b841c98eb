// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/export.h"

// The secret of a job: who knows it may join. It comes from a file (never from an argument or a
// variable: those show in ps and in core dumps of children) and is printed nowhere.
namespace trireme::net {

/// A variable's value, or nullopt: process_env in programs, a map in tests.
using Getenv = std::function<std::optional<std::string>(const std::string&)>;
TRIREME_API std::optional<std::string> process_env(const std::string& name);

/// Bytes that are wiped when the object dies.
class TRIREME_API Secret {
 public:
  /// White space around it is not part of it. UsageError unless 16 to 1,024 bytes are left; `where`
  /// names the file.
  explicit Secret(std::string_view text, std::string_view where = "the secret");
  Secret(const Secret&);
  Secret(Secret&&) noexcept;
  Secret& operator=(Secret) noexcept;
  ~Secret();
  std::string_view bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// From getrandom(2): nonces, keys, names that nobody can guess.
TRIREME_API std::string random_bytes(size_t bytes);
/// 256 random bits as 64 hexadecimal digits.
TRIREME_API std::string generate_secret();
/// 128 random bits as 32 hexadecimal digits: ids and names that nobody can guess.
TRIREME_API std::string random_token();

/// UsageError unless the file is a regular one, belongs to us (or to root), and nobody else may
/// read or write it.
TRIREME_API Secret read_secret_file(const std::string& path);

/// What this process may show at a TCP port.
struct Admission {
  std::optional<Secret> secret;
  bool insecure = false;  // TRIREME_INSECURE=1: everybody who reaches the port may join
  std::string origin;     // where it came from, or where it was looked for
  bool given() const { return secret.has_value() || insecure; }
};

/// TRIREME_SECRET_FILE, else TRIREME_INSECURE=1, else ~/.config/trireme/secret when it exists, else
/// neither. UsageError: a file that read_secret_file refuses, both variables at once, another value
/// than 0 or 1.
TRIREME_API Admission load_admission(const Getenv& env = process_env);

}  // namespace trireme::net
