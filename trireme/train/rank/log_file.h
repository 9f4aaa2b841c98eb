// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

namespace trireme {

/// While the object exists, log lines go to stderr and, as {"time","level","text"}, to the end of
/// this file. open() creates the file, so that a run that is refused leaves none.
class LogFile {
 public:
  explicit LogFile(const std::string& path);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  void open();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
