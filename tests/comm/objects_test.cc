// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/objects.h"

#include <gtest/gtest.h>

#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"

namespace objects_test {

using namespace trireme;

namespace {

struct Placement {
  int rank = 0;
  std::string host;
  std::vector<int> cpus;
  bool operator==(const Placement&) const = default;
  TRIREME_FIELDS(rank, host, cpus)
};

Placement of(int rank) {
  return {rank, std::string(static_cast<size_t>(rank) * 5000, 'h'),
          std::vector<int>(static_cast<size_t>(rank), rank)};
}

void same(bool ok, const char* what) { trireme::check<Error>(ok, "{}: another value", what); }

}  // namespace

TEST(comm_objects, structs_of_any_length_arrive_by_every_collective) {
  for (int n : {1, 2, 5})
    run_threads(n, [n](Group g) {
      const int me = g.rank(), last = n - 1;
      auto all = all_gather_object(g, of(me));
      same(static_cast<int>(all.size()) == n, "all_gather_object");
      for (int r = 0; r < n; ++r) same(all[size_t(r)] == of(r), "all_gather_object");
      same(broadcast_object(g, of(me), last) == of(last), "broadcast_object");
      auto gathered = gather_object(g, of(me), last);
      same(gathered.size() == size_t(me == last ? n : 0), "gather_object");
      for (size_t r = 0; r < gathered.size(); ++r)
        same(gathered[r] == of(static_cast<int>(r)), "gather_object");
      std::vector<Placement> parts;
      if (me == 0)
        for (int r = 0; r < n; ++r) parts.push_back(of(r));
      same(scatter_object(g, parts, 0) == of(me), "scatter_object");
      if (me == 0)
        for (int r = 1; r < n; ++r) send_object(g, of(r), r, 3);
      else
        same(recv_object<Placement>(g, 0, 3) == of(me), "recv_object");
      same(all_gather_object(g, std::string()).size() == size_t(n), "nothing in it");
    });
}

TEST(comm_objects, ranks_that_name_other_types_are_told_both) {
  try {
    run_threads(2, [](Group g) {
      if (g.rank() == 0)
        all_gather_object(g, std::map<std::string, int>{{"a", 1}});
      else
        all_gather_object(g, std::vector<double>{1});
    });
    FAIL() << "not refused";
  } catch (const Mismatch& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("{str:i32}"), std::string::npos) << what;
    EXPECT_NE(what.find("[f64]"), std::string::npos) << what;
  }
}

TEST(comm_objects, a_scatter_of_too_few_values_is_refused) {
  EXPECT_THROW(run_threads(2, [](Group g) { scatter_object(g, std::vector<int>{1}, 0); }),
               UsageError);
}

}  // namespace objects_test
