// Judges the questions at the end of a notebook page, and stores the answers in this browser. The learning path shows
// which notebooks are done. Nothing is sent anywhere; if storage is not available, answers are not stored.
(function () {
  "use strict";
  const KEY = "sbmt.course"; // { "02": [choice or null, one per question] } and { "done": ["02", …] }

  function load() {
    try {
      const kept = JSON.parse(localStorage.getItem(KEY));
      return { answers: kept?.answers ?? {}, done: kept?.done ?? [] };
    } catch {
      return { answers: {}, done: [] };
    }
  }

  function save(progress) {
    try {
      localStorage.setItem(KEY, JSON.stringify(progress));
    } catch {
      // a private window, or a full or forbidden storage: answers are still judged
    }
  }

  function typeset(node) {
    const delimiters = [{ left: "$", right: "$", display: false }];
    if (window.renderMathInElement) renderMathInElement(node, { throwOnError: false, delimiters });
  }

  function startQuiz(quiz) {
    const number = quiz.dataset.notebook;
    const questions = [...quiz.querySelectorAll(".quiz-question")];
    const buttonsOf = (question) => [...question.querySelectorAll("button")];
    const progress = load();
    const answers = questions.map((_, i) => progress.answers[number]?.[i] ?? null);
    const isRight = (question, choice) => buttonsOf(question)[choice]?.hasAttribute("data-right") ?? false;

    function show(question, choice) {
      buttonsOf(question).forEach((button, i) => {
        button.setAttribute("aria-pressed", String(i === choice));
      });
      if (choice === null || !buttonsOf(question)[choice]) return;
      const right = isRight(question, choice);
      const said = question.querySelector(".quiz-say");
      const verdict = document.createElement("b");
      verdict.textContent = right ? "✓ Right." : "✗ Not quite.";
      const reason = buttonsOf(question)[choice].nextElementSibling.content.cloneNode(true);
      said.replaceChildren(verdict, " ", reason);
      said.dataset.verdict = right ? "right" : "wrong";
      typeset(said);
    }

    function showDone() {
      const nRight = questions.filter((question, i) => isRight(question, answers[i])).length;
      const isDone = nRight === questions.length;
      quiz.querySelector(".quiz-done").textContent = isDone ? "✓ All three are right. The learning path now shows a tick for this notebook." : "";
      return isDone;
    }

    questions.forEach((question, i) => {
      show(question, answers[i]);
      buttonsOf(question).forEach((button, choice) => {
        button.addEventListener("click", () => {
          answers[i] = choice;
          show(question, choice);
          const now = load(); // another tab may have stored answers meanwhile
          now.answers[number] = answers;
          if (showDone() && !now.done.includes(number)) now.done.push(number);
          save(now);
        });
      });
    });
    quiz.hidden = false;
    typeset(quiz);
    showDone();
  }

  function startPath() {
    const steps = [...document.querySelectorAll(".course [data-notebook]")];
    const told = document.querySelector(".course-progress");

    function show() {
      const done = steps.filter((step) => load().done.includes(step.dataset.notebook));
      for (const step of steps) {
        const tick = step.querySelector(".course-tick");
        tick.textContent = done.includes(step) ? "✓ done" : "";
      }
      if (!told) return;
      told.hidden = done.length === 0;
      const isCore = (step) => !step.closest(".course-asides");
      const n = steps.filter(isCore).length;
      told.querySelector("span").textContent = `${done.filter(isCore).length} of ${n} done.`;
    }

    told?.querySelector("button").addEventListener("click", () => {
      save({ answers: {}, done: [] });
      show();
    });
    show();
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll(".quiz").forEach(startQuiz);
    startPath();
  });
})();
