// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme::bench {

/// Where rank 0's lines go: a table on stdout and a JSON line for each row in a file, or the JSON
/// lines alone on stdout ("-"). The other ranks' say nothing.
class Output {
 public:
  Output(bool on, const std::string& json);
  void human(const std::string& line);
  void record(const nlohmann::ordered_json& row);

 private:
  bool on_, to_stdout_ = false;
  std::ofstream file_;
};

/// A row of the table. The columns up to #wrong are where nccl-tests has them.
struct Row {
  const char* op = "";
  std::string backend;
  int64_t bytes = 0, count = 0;
  const char* type = "";
  const char* redop = "none";
  int root = -1;
  double seconds = 0, p90 = 0;
  double algbw = 0, busbw = 0;  // GB/s
  int64_t wrong = -1;           // -1: not checked
  double bound = 0;             // seconds; 0: none
};
/// `width`: of the column of backends.
std::string table_head(bool in_place, size_t width);
std::string table_line(const Row& row, size_t width);

}  // namespace trireme::bench
