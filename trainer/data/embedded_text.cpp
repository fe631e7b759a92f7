#include "trainer/data/embedded_text.h"

#include <array>
#include <string_view>

#include "trainer/data/dataset.h"

namespace tersewire::trainer {
namespace {

constexpr std::uint64_t kTextDomain = 0x74657874;  // "text"

// What there is one of, and several of.
struct Word {
  std::string_view one;
  std::string_view many;
};

constexpr std::array<std::string_view, 4> kSpeakers = {"MILLER", "SAILOR", "WIDOW", "SMITH"};
constexpr std::array<Word, 10> kNouns = {{{"boat", "boats"},
                                          {"lamp", "lamps"},
                                          {"horse", "horses"},
                                          {"neighbour", "neighbours"},
                                          {"child", "children"},
                                          {"goose", "geese"},
                                          {"wheel", "wheels"},
                                          {"letter", "letters"},
                                          {"stranger", "strangers"},
                                          {"kettle", "kettles"}}};
constexpr std::array<Word, 10> kVerbs = {{{"waits", "wait"},
                                          {"turns", "turn"},
                                          {"sleeps", "sleep"},
                                          {"is lost", "are lost"},
                                          {"has gone", "have gone"},
                                          {"sings", "sing"},
                                          {"does not move", "do not move"},
                                          {"comes home", "come home"},
                                          {"was found", "were found"},
                                          {"shines", "shine"}}};
constexpr std::array<std::string_view, 8> kAdjectives = {"old",   "quiet", "broken",  "little",
                                                         "white", "heavy", "strange", "last"};
constexpr std::array<std::string_view, 8> kPlaces = {
    "by the river",     "under the bridge", "in the rain", "at the mill",
    "near the harbour", "behind the barn",  "on the hill", "before the storm"};
constexpr std::array<std::string_view, 6> kOpenings = {"I say that",      "we know that",
                                                       "they tell me",    "it is true that",
                                                       "nobody saw that", "my mother wrote that"};

class Talk {
 public:
  explicit Talk(std::uint64_t seed) : random_(seed, kTextDomain, 0) {}

  // Nobody speaks twice running.
  void append_turn(std::string& text) {
    speaker_ = (speaker_ + 1 + random_.below(kSpeakers.size() - 1)) % kSpeakers.size();
    text += kSpeakers[speaker_];
    text += ":\n";
    const std::uint32_t sentences = 1 + random_.below(3);
    for (std::uint32_t i = 0; i < sentences; ++i) append_sentence(text);
    text += '\n';
  }

 private:
  template <std::size_t N, typename T>
  const T& any(const std::array<T, N>& words) {
    return words[random_.below(N)];
  }

  bool chance(std::uint32_t of) { return random_.below(of) == 0; }

  void append_sentence(std::string& text) {
    const std::size_t start = text.size();
    const bool asks = chance(5);
    if (asks) text += "who knows why ";
    if (!asks && chance(3)) (text += any(kOpenings)) += ' ';
    append_clause(text);
    if (chance(3)) append_clause(text += chance(2) ? ", and " : ", but ");
    text += asks ? "?\n" : ".\n";
    if (text[start] >= 'a') text[start] = static_cast<char>(text[start] - 'a' + 'A');
  }

  // The verb agrees with the first noun, whatever stands between.
  void append_clause(std::string& text) {
    const bool several = chance(2);
    append_things(text, several);
    if (chance(3)) append_things(text += " of ", chance(2));
    if (chance(3)) (text += ' ') += any(kPlaces);
    const Word& verb = any(kVerbs);
    (text += ' ') += several ? verb.many : verb.one;
    if (chance(3)) (text += ' ') += any(kPlaces);
  }

  void append_things(std::string& text, bool several) {
    text += several ? "those " : "the ";
    if (chance(2)) (text += any(kAdjectives)) += ' ';
    const Word& noun = any(kNouns);
    text += several ? noun.many : noun.one;
  }

  CounterRandom random_;
  std::size_t speaker_ = 0;
};

}  // namespace

std::string generate_text(std::uint64_t seed, std::size_t bytes) {
  Talk talk(seed);
  std::string text;
  while (text.size() < bytes) talk.append_turn(text);
  text.resize(bytes);
  return text;
}

}  // namespace tersewire::trainer
