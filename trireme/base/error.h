// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "trireme/base/export.h"

// Errors, classified by what the caller can do next. The text is one or two sentences: what
// happened, where (file:line, rank or host), and what to do. `rank`, `peer` and `seq` are -1 where
// they do not apply.
namespace trireme {

struct ErrorContext {
  int rank = -1;
  int peer = -1;
  std::string op;
  int64_t seq = -1;
};

class TRIREME_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, ErrorContext context = {})
      : std::runtime_error(what), context_(std::move(context)) {}
  ~Error() override;
  const ErrorContext& context() const { return context_; }
  int rank() const { return context_.rank; }
  int peer() const { return context_.peer; }
  const std::string& op() const { return context_.op; }
  int64_t seq() const { return context_.seq; }
  /// The name of the class, as monitors count it: "UsageError", "PeerLost", ….
  virtual const char* kind() const { return "Error"; }

 private:
  ErrorContext context_;
};

#define TRIREME_ERROR_KIND(Name)                        \
  class TRIREME_API Name : public Error {               \
   public:                                              \
    using Error::Error;                                 \
    ~Name() override;                                   \
    const char* kind() const override { return #Name; } \
  }

TRIREME_ERROR_KIND(UsageError);     // fix the call or the configuration
TRIREME_ERROR_KIND(Mismatch);       // ranks made different calls: fix the program
TRIREME_ERROR_KIND(PeerLost);       // a peer died or failed: the group is finished, rebuild or stop
TRIREME_ERROR_KIND(Timeout);        // a rank did not arrive in time: the group is finished
TRIREME_ERROR_KIND(Aborted);        // this rank aborted the group earlier: the group is finished
TRIREME_ERROR_KIND(ResourceError);  // disk, memory, port, limit: free it, then retry
TRIREME_ERROR_KIND(NumericError);   // a NaN or an infinity: names rank, parameter, step
TRIREME_ERROR_KIND(Corrupt);        // the bytes are damaged: take another copy
#undef TRIREME_ERROR_KIND

/// The message of an error, without the stack trace that LibTorch appends to it.
TRIREME_API std::string brief(const std::exception& error);

/// Exit codes of our binaries (docs/design.md, section 4).
enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitSavedRestart = 75,  // interrupted after saving; restart to resume
  kExitSignalBase = 128,
};

/// kExitUsage for a UsageError, else kExitFailed.
TRIREME_API int exit_code_for(const std::exception& error);

}  // namespace trireme
