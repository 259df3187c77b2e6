"""Paths with a place for the task's name: in those that are passed, and in the defaults below any folder."""

from configure_finetuning import make_config, validate


def test_braces_of_folders_are_no_places_for_names(tmp_path):
    data = str(tmp_path / "{x} {}")
    config = make_config("m{0}", data, {"task_names": ["squad"]})
    validate(config)
    model = f"{data}/models/m{{0}}"
    assert config.predictions_path("squad", "test", 2) == f"{model}/test_predictions/squad_test_2_predictions"
    assert config.qa_path("na", "squad") == f"{model}/results/squad_qa/squad_null_odds.json"


def test_passed_patterns(tmp_path):
    passed = {"test_predictions": "out/{1}/{0}-{2}", "qa_eval_file": "{}/eval.json", "qa_preds_file": "here.json"}
    config = make_config("m", str(tmp_path), passed)
    validate(config)
    assert config.predictions_path("squad", "test", 2) == "out/test/squad-2"
    assert (config.qa_path("eval", "squad"), config.qa_path("preds", "squad")) == ("squad/eval.json", "here.json")
