// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/launch/membership/membership.h"
#include "trireme/launch/membership/standing.h"

// Who goes on when the launcher that keeps an elastic job's store is lost, and who keeps the next
// one. Pure: what one launcher sees of the others in, what it does next out.
namespace trireme::launch {

/// How another member looks from here.
enum class Sight {
  answers,
  refused,  // its host answers, and nobody listens at its address: it has died
  silent,   // it may live, behind a network that is cut
  left      // it said that it takes part no more
};

/// Of one generation, when everybody has had the time to answer.
struct Quorum {
  int members = 0;
  int ours = 0;     // that go with us, we too
  int refused = 0;  // Sight, of the others
  int left = 0;
};
enum class Verdict {
  go_on,
  claim,   // the next generation goes to who first claims it, in a place that both sides see
  give_up  // others may go on
};
/// More than half of those that have not left go on. At a tie a refused connection is death, and
/// silence is not. Fewer may claim where all others are known to be dead: each generation that
/// follows a loss is claimed, so that one they have not heard of is in their way.
TRIREME_API Verdict verdict_of(const Quorum& quorum);

/// Whether a generation may begin that is to follow `before`, of which `accepted` have accepted it:
/// `sights` of the others, by token.
TRIREME_API Quorum count_quorum(const Generation& before, const std::vector<std::string>& accepted,
                                const std::map<std::string, Sight>& sights);

struct SuccessionView {
  struct Seen {
    Sight sight = Sight::silent;
    Standing standing = {};  // where it answers
    Duration unheard{};      // where it is silent: since it answered, or we have asked
  };
  std::string us;
  Standing own;
  Generation last;  // the newest that we have accepted
  /// Where we do not know that it has begun, those before it that may have: each must agree.
  std::vector<Generation> before = {};
  std::map<std::string, Seen> seen = {};  // the other members of all these, by token
  Duration waited{};                      // since our store was lost
  bool yielded = false;                   // to another, after we had asked for ourselves
  /// Newer ones that wait for others to agree, as their store says, by number and keeper: nobody
  /// goes there to whom it has not been promised, because what he could agree to he has left then.
  std::set<std::pair<int64_t, std::string>> not_begun = {};
};

struct SuccessionPatience {
  Duration silence = std::chrono::seconds(6);  // of who does not answer
  Duration turn = std::chrono::seconds(2);     // of such a one that is before us
  Duration others = std::chrono::seconds(60);  // of who answers, and whose workers still end
};

struct SuccessionStep {
  enum Kind {
    wait,
    ask,      // `asked` to follow us: their standing becomes promised, if it is what we saw; us
              // first, and the others if that is done
    yield,    // our own standing becomes promised to `who`, for good
    follow,   // `who`, at its own table: we have promised it
    rejoin,   // a newer `generation` of `keeper`, whose store is at `who`, as a newcomer
    decided,  // by `verdict`: to keep the store of the next generation, perhaps with a claim
    give_up   // because of `sentence`
  };
  Kind kind = wait;
  std::vector<std::string> asked = {};
  std::string who = {};
  Verdict verdict = Verdict::give_up;
  int64_t generation = -1;  // rejoin
  std::string keeper = {};
  int followers = 0;  // decided: that have promised, we too
  std::string sentence = {};
};

/// The first member in the order of ranks that has lost the store, too, asks the others. Where two
/// have begun to, the later one yields, and asks no more.
TRIREME_API SuccessionStep next_step(const SuccessionView& view,
                                     const SuccessionPatience& patience = {});

}  // namespace trireme::launch
