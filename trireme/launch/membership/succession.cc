// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/membership/succession.h"

#include <algorithm>
#include <optional>

#include "trireme/base/check.h"

namespace trireme::launch {
namespace {

using Kind = SuccessionStep::Kind;

class View {
 public:
  explicit View(const SuccessionView& view) : view_(view) {
    add(view.last);
    for (const Generation& before : view.before) add(before);
  }

  const std::vector<std::string>& tokens() const { return tokens_; }
  Sight sight(const std::string& token) const {
    if (token == view_.us) return Sight::answers;
    const auto found = view_.seen.find(token);
    return found == view_.seen.end() ? Sight::silent : found->second.sight;
  }
  const Standing& standing(const std::string& token) const {
    return token == view_.us ? view_.own : view_.seen.at(token).standing;
  }
  bool answers(const std::string& token) const {
    return sight(token) == Sight::answers && standing(token).is != Standing::left;
  }
  Duration unheard(const std::string& token) const {
    const auto found = view_.seen.find(token);
    return found == view_.seen.end() ? Duration::zero() : found->second.unheard;
  }
  bool dead(const std::string& token) const {
    return token != view_.us && (sight(token) == Sight::refused || gone(token));
  }
  bool gone(const std::string& token) const {
    return sight(token) == Sight::left ||
           (sight(token) == Sight::answers && standing(token).is == Standing::left);
  }
  bool follows_us(const std::string& token) const {
    return answers(token) && standing(token).is == Standing::promised &&
           standing(token).to == view_.us;
  }
  /// Nobody who lives, and has not yielded, has its promise.
  bool can_be_asked(const std::string& token) const {
    if (!answers(token) || !we_know_what_it_accepted(token)) return false;
    const Standing& s = standing(token);
    if (s.is == Standing::free) return true;
    return s.is == Standing::promised && s.to != view_.us && s.to != token && is_void(s.to);
  }
  bool asks_for_itself(const std::string& token) const {
    return answers(token) && standing(token).is == Standing::promised &&
           standing(token).to == token;
  }

  Quorum quorum(const Generation& generation) const {
    std::vector<std::string> ours;
    std::map<std::string, Sight> sights;
    for (const Member& m : generation.members) {
      if (follows_us(m.token)) ours.push_back(m.token);
      sights[m.token] = gone(m.token) ? Sight::left : sight(m.token);
    }
    return count_quorum(generation, ours, sights);
  }

 private:
  /// What it has accepted may have begun: then we must be behind it.
  bool we_know_what_it_accepted(const std::string& token) const {
    const Standing& s = standing(token);
    const auto is_its = [&](const Generation& g) {
      return g.number == s.generation && g.keeper == s.of;
    };
    const Generation& oldest = view_.before.empty() ? view_.last : view_.before.back();
    return s.generation < oldest.number || is_its(view_.last) ||
           std::any_of(view_.before.begin(), view_.before.end(), is_its);
  }
  bool is_void(const std::string& to) const {
    return dead(to) ||
           (answers(to) && standing(to).is == Standing::promised && standing(to).to != to);
  }
  void add(const Generation& generation) {
    for (const Member& m : generation.members)
      if (std::find(tokens_.begin(), tokens_.end(), m.token) == tokens_.end())
        tokens_.push_back(m.token);
  }

  const SuccessionView& view_;
  std::vector<std::string> tokens_;  // in the order of ranks
};

SuccessionStep give_up(std::string sentence) {
  SuccessionStep step{Kind::give_up};
  step.sentence = std::move(sentence);
  return step;
}

SuccessionStep wait_for(const std::string& token, const SuccessionView& view,
                        const SuccessionPatience& patience) {
  if (view.waited < patience.others) return SuccessionStep{};
  return give_up(
      fmt::format("the launcher '{}' was to keep the job's store, and does not ask", token));
}

/// Somebody knows more than we do; nothing: nobody does.
std::optional<SuccessionStep> follow_newer(const SuccessionView& view, const View& all,
                                           const SuccessionPatience& patience) {
  const Standing* newest = nullptr;
  for (const std::string& token : all.tokens()) {
    if (!all.answers(token) || all.standing(token).generation <= view.last.number) continue;
    const Standing& s = all.standing(token);
    if (s.is == Standing::in && view.not_begun.contains({s.generation, s.of})) continue;
    if (!newest || s.generation > newest->generation ||
        (s.generation == newest->generation && s.is == Standing::in))
      newest = &s;
  }
  if (!newest) return std::nullopt;
  if (newest->is == Standing::in) {
    SuccessionStep step{Kind::rejoin};
    step.who = newest->store;
    step.generation = newest->generation;
    step.keeper = newest->of;
    return step;
  }
  // It has lost its store, too, and asks us.
  if (view.waited < patience.others) return SuccessionStep{};
  return give_up("the others went on without this node, and have lost their store since");
}

}  // namespace

Verdict verdict_of(const Quorum& q) {
  const int voters = q.members - q.left;
  const bool others_are_dead = q.ours + q.refused >= voters;
  if (q.ours <= 0) return Verdict::give_up;
  if (2 * q.ours > voters) return Verdict::go_on;
  if (2 * q.ours == voters) return others_are_dead ? Verdict::go_on : Verdict::claim;
  return others_are_dead ? Verdict::claim : Verdict::give_up;
}

Quorum count_quorum(const Generation& before, const std::vector<std::string>& accepted,
                    const std::map<std::string, Sight>& sights) {
  Quorum q;
  q.members = static_cast<int>(before.members.size());
  for (const Member& m : before.members) {
    const auto found = sights.find(m.token);
    const Sight sight = found == sights.end() ? Sight::silent : found->second;
    if (std::find(accepted.begin(), accepted.end(), m.token) != accepted.end())
      ++q.ours;
    else if (sight == Sight::left)
      ++q.left;
    else if (sight == Sight::refused)
      ++q.refused;
  }
  return q;
}

SuccessionStep next_step(const SuccessionView& view, const SuccessionPatience& patience) {
  const View all(view);
  if (const auto newer = follow_newer(view, all, patience)) return *newer;
  const Standing& own = view.own;
  const bool ask = !view.yielded && (all.asks_for_itself(view.us) || all.can_be_asked(view.us));
  if (!ask) {
    if (all.dead(own.to) || own.is != Standing::promised) {
      if (view.waited < patience.others) return SuccessionStep{};
      return give_up("the node that was to keep the job's store has died, and no other asks");
    }
    if (all.sight(own.to) == Sight::answers || view.waited < patience.others) {
      SuccessionStep step{Kind::follow};
      step.who = own.to;
      return step;
    }
    return give_up("the node that was to keep the job's store does not answer any more");
  }
  bool before_us = true;
  for (const std::string& token : all.tokens()) {
    if (token == view.us) {
      before_us = false;
    } else if (all.asks_for_itself(token)) {
      if (!all.asks_for_itself(view.us)) return wait_for(token, view, patience);
      if (before_us) {
        SuccessionStep step{Kind::yield};
        step.who = token;
        return step;
      }
    } else if (before_us && !all.asks_for_itself(view.us) && !all.dead(token) &&
               (all.answers(token) ? view.waited < patience.others
                                   : all.unheard(token) < patience.turn)) {
      return SuccessionStep{};  // it has lost the store, too, and asks us, or will
    }
  }
  SuccessionStep step{Kind::ask};
  int undecided = 0, silent = 0, awaited = 0;
  for (const std::string& token : all.tokens()) {
    if (all.can_be_asked(token))
      step.asked.push_back(token);
    else if (all.answers(token))
      undecided += !all.follows_us(token);
    else if (all.sight(token) == Sight::silent)
      ++silent, awaited += all.unheard(token) < patience.silence;
    step.followers += all.follows_us(token);
  }
  if (!step.asked.empty()) return step;
  if ((undecided && view.waited < patience.others) || awaited) return SuccessionStep{};
  step.kind = Kind::decided;
  step.verdict = verdict_of(all.quorum(view.last));
  for (const Generation& before : view.before)
    step.verdict = std::max(step.verdict, verdict_of(all.quorum(before)));
  if (step.verdict != Verdict::give_up) return step;
  return give_up(fmt::format(
      "{} of the {} nodes of the job are together here, {}: the others may go on, and not these",
      step.followers, view.last.members.size(),
      undecided ? fmt::format("and {} still have their store", undecided)
                : fmt::format("and {} do not answer", silent)));
}

}  // namespace trireme::launch
