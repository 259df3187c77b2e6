"""Files of questions: what is read, what is skipped and said, and what is an error."""

import json

import pytest

from finetune.qa.qa_tasks import MRQA, CustomQA, SQuAD, SQuADv1
from finetune.qa.reading import QuestionReader
from finetune.tables import notes_on
from tests.questions import GERMAN, as_mrqa, make_qa_config, make_tokenizer, question, squad, write_split
from util.errors import UserError

TOKENIZER = make_tokenizer()


def read(path, unanswerable=False, training=True, most=0):
    return QuestionReader(str(path), unanswerable, training, most).examples()


def said_of(path) -> str:
    return "\n".join(notes_on(str(path)))


def german(number: int = 1) -> dict:
    """Paragraphs with two questions each."""
    return squad(
        *(
            (
                GERMAN,
                [
                    question(f"{i}a", "Wer aß Grünkohl?", "Käthe Müller", "Müller", context=GERMAN),
                    question(f"{i}b", "Wohin zog er?", "Österreich", context=GERMAN),
                ],
            )
            for i in range(number)
        )
    )


@pytest.mark.parametrize("ending", [".json", ".jsonl"])
@pytest.mark.parametrize("before", ["", "\ufeff"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_both_formats_with_bom_and_crlf(tmp_path, ending, before, line_end):
    content = as_mrqa(german()) if ending == ".jsonl" else json.dumps(german(), indent=1, ensure_ascii=False)
    path = tmp_path / f"train{ending}"
    path.write_bytes((before + content.replace("\n", line_end)).encode())
    examples = read(path)
    assert [(example.eid, example.id, example.answer.text) for example in examples] == [
        (0, "0a", "Käthe Müller"),
        (1, "0b", "Österreich"),
    ]
    assert [example.paragraph.words[example.answer.last_word] for example in examples] == ["Müller", "Österreich."]
    assert examples[0].golds == ("Käthe Müller", "Müller")
    dev = read(path, training=False)
    assert [example.answer for example in dev] == [None, None] and dev[0].golds == examples[0].golds


def test_answers_that_are_not_in_the_text_are_counted_and_shown(tmp_path):
    content = german(50)
    questions = content["data"][0]["paragraphs"][3]["qas"]
    questions[0]["answers"][0]["answer_start"] = GERMAN.index("aß")
    questions[1]["answers"][0]["answer_start"] = len(GERMAN) + 10
    content["data"][0]["paragraphs"][4]["qas"][0]["answers"][0]["answer_start"] = -1
    path = write_split(tmp_path, "squadv1", "train.json", content)
    assert len(read(path)) == 97
    said = said_of(path)
    assert "the answers to 3 of 100 questions" in said
    assert "paragraph 4, question 1: 'Käthe Müller' is looked for in 'aß in Köln täglich'" in said
    assert f"'Österreich' at {len(GERMAN) + 10} is beyond the text's {len(GERMAN)} characters" in said
    assert len(read(path, training=False)) == 100  # all are evaluated


def test_every_answer_missing_is_an_error(tmp_path):
    content = squad((GERMAN, [question("a", "Wer?", "nobody", context=GERMAN)]))
    with pytest.raises(UserError, match="(?s)the answers to 1 of 1 questions are not in the text where.*'nobody'"):
        read(write_split(tmp_path, "squadv1", "train.json", content))


def test_ids_there_twice(tmp_path):
    content = german(2)
    content["data"][0]["paragraphs"][1]["qas"][1]["id"] = "0a"
    path = write_split(tmp_path, "squadv1", "train.json", content)
    assert len(read(path)) == 4
    assert "1 ids of questions are there twice" in said_of(path)
    with pytest.raises(UserError, match=r"paragraph 2, question 2 has the \"id\" '0a' of article 1, paragraph 1"):
        read(path, training=False)


def test_no_ids(tmp_path):
    content = german()
    del content["data"][0]["paragraphs"][0]["qas"][1]["id"]
    path = write_split(tmp_path, "squadv1", "train.json", content)
    assert [example.id for example in read(path)] == ["0a", None]
    with pytest.raises(UserError, match='question 2 has no "id"'):
        read(path, training=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ('{"data": [', "not valid JSON"),
        ("[" * 100_000, "nested too deeply|not valid JSON"),
        ("[]", 'no list "data"; expected'),
        ('{"data": {}}', 'no list "data"'),
        ('{"data": []}', "not one question"),
        ('{"data": [{"paragraphs": 3}]}', '1 of 1 paragraphs are malformed.*\n.*article 1: no list "paragraphs"'),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', 'paragraph 1: no text "context"'),
        ('{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "x"}]}]}]}', 'question 1: no text "question"'),
        ('{"data": [{"paragraphs": [{"context": "a", "qas": ["x"]}]}]}', 'question 1: no text "question"'),
        (
            '{"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "x", "answers": [{"text": "a"}]}]}]}]}',
            "an answer's place is not a number of characters but None",
        ),
        ('{"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "x"}]}]}]}', "no answer to train on"),
    ],
)
def test_what_is_no_file_of_questions(tmp_path, content, message):
    path = write_split(tmp_path, "squadv1", "train.json", content)
    with pytest.raises(UserError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)


def malformed_lines(tmp_path, number: int):
    lines = as_mrqa(german(1000)).split("\n")
    for i in range(number):
        lines[10 + 3 * i] = '{"context": '
    return write_split(tmp_path, "newsqa", "train.jsonl", "\n".join(lines))


def test_a_few_malformed_lines_are_skipped(tmp_path):
    path = malformed_lines(tmp_path, 5)
    assert len(read(path)) == 1990
    said = said_of(path)
    assert "5 of 1000 paragraphs are malformed and skipped" in said and "line 11: not JSON" in said


def test_many_malformed_lines_are_an_error(tmp_path):
    with pytest.raises(UserError, match="50 of 1000 paragraphs are malformed, more than 1%"):
        read(malformed_lines(tmp_path, 50))


def test_bytes_of_another_encoding_are_dropped_and_said(tmp_path):
    path = tmp_path / "dev.json"
    path.write_bytes(json.dumps(german(), ensure_ascii=False).encode("latin-1", "ignore"))
    (first, _) = read(path, training=False)
    assert first.paragraph.text.startswith("Kthe Mller")
    assert "bytes are not UTF-8 and dropped" in said_of(path)


def test_lone_surrogates_do_not_reach_the_files_that_are_written(tmp_path):
    content = json.dumps(german()).replace("Grünkohl", "x").replace("K\\u00e4the", "\\ud83dthe")
    (first, _) = read(write_split(tmp_path, "squadv1", "dev.json", content), training=False)
    assert first.paragraph.text.startswith("\ufffdthe") and first.golds[0].encode("utf-8")


@pytest.mark.parametrize("context", ["", " \n\t \u202f"])
def test_a_text_without_words(tmp_path, context):
    content = squad((context, [question("a", "Wer?"), question("b", "Wo?", is_impossible=True)]))
    for split in ("train", "dev"):
        task = SQuAD(make_qa_config(tmp_path), "squad", TOKENIZER)
        write_split(tmp_path, "squad", f"{split}.json", content)
        examples = task.examples(split)
        assert len(examples) == 2
        assert [task.featurize(example, split == "train") for example in examples] == [[], []]


def test_a_text_of_100_000_words(tmp_path):
    context = " ".join(f"w{i}" for i in range(100_000))
    content = squad(
        (context, [question(f"{i}", "Was?", f"w{70_000 + i} w{70_001 + i}", context=context) for i in range(3)])
    )
    write_split(tmp_path, "squadv1", "train.json", content)
    task = SQuADv1(make_qa_config(tmp_path, max_seq_length=512, doc_stride=256), "squadv1", TOKENIZER)
    for example in task.examples("train"):
        windows = task.featurize(example, True)
        assert len(windows) > 1000
        assert any(window["squadv1_start_positions"] for window in windows)


def test_debug_limits(tmp_path):
    write_split(tmp_path, "newsqa", "train.jsonl", as_mrqa(german(30)))
    write_split(tmp_path, "squad", "train-debug.json", german(2))
    write_split(tmp_path, "own", "train.json", german(30))
    config = make_qa_config(tmp_path, debug=True)
    assert len(MRQA(config, "newsqa", TOKENIZER).examples("train")) == 20  # ten lines after the header
    assert len(SQuAD(config, "squad", TOKENIZER).examples("train")) == 4
    assert len(CustomQA(config, "own", TOKENIZER, {}).examples("train")) == 22
    with pytest.raises(UserError, match="dev-debug.json"):
        SQuAD(config, "squad", TOKENIZER).examples("dev")


@pytest.mark.parametrize(("kind", "name", "ending"), [(SQuAD, "squad", "json"), (MRQA, "newsqa", "jsonl")])
def test_missing_files_are_listed(tmp_path, kind, name, ending):
    task = kind(make_qa_config(tmp_path), name, TOKENIZER)
    with pytest.raises(UserError, match=f"train.{ending}.*dev.{ending}.*no such folder"):
        task.files("train")
    write_split(tmp_path, name, "tarin.json", german())
    with pytest.raises(UserError, match="tarin.json"):
        task.examples("train")


def test_unlabelled_files_are_predicted_not_evaluated(tmp_path):
    content = squad((GERMAN, [{"id": "a", "question": "Wer?"}]))
    for split in ("dev", "test"):
        write_split(tmp_path, "squad", f"{split}.json", content)
        write_split(tmp_path, "squadv1", f"{split}.json", content)
    for kind, name in ((SQuAD, "squad"), (SQuADv1, "squadv1")):
        task = kind(make_qa_config(tmp_path), name, TOKENIZER)
        (example,) = task.examples("test")
        assert example.golds is None and task.featurize(example, False)
        with pytest.raises(UserError, match="1 of 1 questions, the first 'a', have no \"answers\""):
            task.examples("dev")
        task = kind(make_qa_config(tmp_path, do_eval=False), name, TOKENIZER)
        assert len(task.examples("dev")) == 1


def test_unanswerable_questions_in_a_task_without(tmp_path):
    content = squad((GERMAN, [question("a", "Wer?", is_impossible=True)]))
    for split in ("train", "dev"):
        write_split(tmp_path, "squadv1", f"{split}.json", content)
    task = SQuADv1(make_qa_config(tmp_path), "squadv1", TOKENIZER)
    with pytest.raises(UserError, match="a task like squad"):
        task.examples("dev")
    with pytest.raises(UserError, match="no answer to train on"):
        task.examples("train")
