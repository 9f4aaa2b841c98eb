// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/sealed_text.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/base/check.h"

namespace trireme::launch {
namespace {

constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

UniqueFd seal_text(const std::string& name, std::string_view text) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_ALLOW_SEALING));
  check<ResourceError>(static_cast<bool>(fd), "cannot make a memory file: {}", errno_text());
  while (!text.empty()) {
    const ssize_t n = ::write(fd.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    check<ResourceError>(n > 0, "cannot write a memory file: {}", errno_text());
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    fail<ResourceError>("cannot seal a memory file: {}", errno_text());
  return fd;
}

std::string take_sealed_text(int number) {
  const int seals = ::fcntl(number, F_GET_SEALS);
  check<UsageError>(seals >= 0 && (seals & kSeals) == kSeals,
                    "descriptor {} is not a sealed text of a launcher", number);
  const UniqueFd fd(number);
  std::string text;
  char block[1 << 14];
  while (true) {  // its place in the file is shared with the other workers, so not read(2)
    const ssize_t n = ::pread(fd.get(), block, sizeof block, static_cast<off_t>(text.size()));
    if (n < 0 && errno == EINTR) continue;
    check<ResourceError>(n >= 0, "cannot read a memory file: {}", errno_text());
    if (n == 0) return text;
    text.append(block, static_cast<size_t>(n));
  }
}

}  // namespace trireme::launch
