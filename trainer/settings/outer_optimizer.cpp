#include "trainer/settings/outer_optimizer.h"

#include "tersewire/setting_text.h"

namespace tersewire::trainer {

OuterOptimizer outer_optimizer(const std::string& text) {
  SettingText setting(text, "outer optimizer");
  const bool nesterov = setting.name() == "nesterov";
  if (!nesterov && setting.name() != "sgd") setting.refuse_name({"sgd", "nesterov"});
  OuterOptimizer outer{
      .nesterov = nesterov,
      .learning_rate = setting.take_number("lr", nesterov ? 0.7 : 1, 1e-6, 1e3),
      .momentum = setting.take_number("momentum", nesterov ? 0.9 : 0, 0, 1),
  };
  setting.finish({"lr", "momentum"});
  if (nesterov && outer.momentum == 0) {
    setting.refuse("momentum", "above 0, or the optimizer sgd", "0");
  }
  return outer;
}

}  // namespace tersewire::trainer
