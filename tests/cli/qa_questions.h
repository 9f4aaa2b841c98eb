// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

// Questions in the formats of SQuAD and of Natural Questions, made of few words.
namespace trireme::testing {

/// Question i asks for the colour of one of the things that its document tells of.
class MadeQuestions {
 public:
  explicit MadeQuestions(int count) {
    static const std::vector<std::string> things = {"house", "boat", "door", "stone", "bird",
                                                    "flag",  "coat", "lamp", "table", "horse"},
                                          colours = {"red",   "green", "blue",  "white",
                                                     "black", "brown", "amber", "grey"};
    for (int i = 0; i < count; ++i) {
      Made made;
      const int asked = i % 3;
      std::string text;
      for (int k = 0; k < 3; ++k) {
        const std::string& thing = things[static_cast<size_t>(i + 3 * k) % things.size()];
        const std::string& colour =
            colours[static_cast<size_t>(i * 5 + k * 3 + i / 8) % colours.size()];
        text += (k ? " The " : "The ") + thing + " is ";
        if (k == asked) {
          made.question = "what is the colour of the " + thing + " ?";
          made.answer = colour;
          made.begin = text.size();
        }
        text += colour + " .";
      }
      made.document = text;
      all_.push_back(made);
    }
  }

  /// [PAD], [UNK], [CLS] and [SEP] at their places, and every word.
  std::string vocabulary() const {
    std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
    std::set<std::string> words{"the", "yes"};
    for (const Made& made : all_)
      for (const std::string& part : {made.question, made.document}) {
        std::string word;
        for (const char c : part + " ")
          if (c != ' ')
            word += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
          else if (!word.empty())
            words.insert(std::exchange(word, {}));
      }
    for (const std::string& word : words) text += word + "\n";
    return text;
  }
  std::string squad() const {
    nlohmann::json paragraphs = nlohmann::json::array();
    for (size_t i = 0; i < all_.size(); ++i)
      paragraphs.push_back(
          {{"context", all_[i].document},
           {"qas",
            {{{"id", "q" + std::to_string(i)},
              {"question", all_[i].question},
              {"answers", {{{"text", all_[i].answer}, {"answer_start", all_[i].begin}}}}}}}});
    return nlohmann::json{{"version", "1.1"},
                          {"data", {{{"title", "made"}, {"paragraphs", paragraphs}}}}}
        .dump();
  }
  std::string natural_questions() const {
    std::string lines;
    for (size_t i = 0; i < all_.size(); ++i) {
      const auto words = [](const std::string& text) {
        return std::count(text.begin(), text.end(), ' ');
      };
      const auto begin = words(all_[i].document.substr(0, all_[i].begin));
      const nlohmann::json annotation = {
          {"yes_no_answer", "NONE"},
          {"long_answer",
           {{"start_token", 0},
            {"end_token", words(all_[i].document) + 1},
            {"candidate_index", 0}}},
          {"short_answers", {{{"start_token", begin}, {"end_token", begin + 1}}}},
          {"annotation_id", i}};
      lines += nlohmann::json{{"document_text", all_[i].document},
                              {"question_text", all_[i].question},
                              {"example_id", i},
                              {"document_url", ""},
                              {"long_answer_candidates", nlohmann::json::array()},
                              {"annotations", {annotation}}}
                   .dump() +
               "\n";
    }
    return lines;
  }

 private:
  struct Made {
    std::string question, document, answer;
    size_t begin = 0;  // of the answer, a byte
  };
  std::vector<Made> all_;
};

}  // namespace trireme::testing
