// The official `openai` package for JavaScript.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.KURUMA_URL}/v1`, apiKey: "x", maxRetries: 0 });
const model = "scripted";
const user = (content) => [{ role: "user", content }];
const parameters = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
};
const tools = [{ type: "function", function: { name: "get_weather", parameters } }];

async function stats() {
  const answer = await fetch(`${process.env.KURUMA_URL}/stats`);
  return (await answer.json()).requests;
}

test("chat", async () => {
  const answer = await client.chat.completions.create({ model, messages: user("Hi") });
  assert.equal(answer.choices[0].message.content, "Hello! How can I help?");
  assert.equal(answer.choices[0].message.reasoning_content, "The user greets me.");
  assert.equal(answer.choices[0].finish_reason, "stop");
});

test("stream", async () => {
  const stream = await client.chat.completions.create({
    model,
    messages: user("Question U"),
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, "車は速い 🚗 – 100 km/h.");
  assert.ok(usage.completion_tokens > 0);
});

test("tools, run by the package", async () => {
  const asked = [];
  const runner = client.chat.completions.runTools({
    model,
    messages: user("Question W"),
    tools: [
      {
        type: "function",
        function: {
          name: "get_weather",
          parameters,
          parse: JSON.parse,
          function: (given) => {
            asked.push(given);
            return "18 degrees";
          },
        },
      },
    ],
  });
  assert.equal(await runner.finalContent(), "It is 18 degrees in Kyoto.");
  assert.deepEqual(asked, [{ city: "Kyoto", days: 2 }]);
});

test("calls in a stream", async () => {
  const stream = client.chat.completions.stream({ model, messages: user("Question 2"), tools });
  const calls = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
  assert.deepEqual(
    calls.map((c) => JSON.parse(c.function.arguments).city),
    ["Kyoto", "Oslo"],
  );
});

test("responses", async () => {
  const answer = await client.responses.create({ model, input: "Hi" });
  assert.equal(answer.output_text, "Hello! How can I help?");
  const stream = client.responses.stream({
    model,
    input: "Question W",
    tools: [{ type: "function", name: "get_weather", parameters, strict: false }],
  });
  const kinds = new Set();
  for await (const event of stream) kinds.add(event.type);
  const final = await stream.finalResponse();
  assert.ok(kinds.has("response.function_call_arguments.delta"));
  assert.deepEqual(JSON.parse(final.output.at(-1).arguments), { city: "Kyoto", days: 2 });
});

test("completions and models", async () => {
  const answer = await client.completions.create({ model, prompt: "Question P" });
  assert.equal(answer.choices[0].text, " and so on.");
  const names = [];
  for await (const listed of client.models.list()) names.push(listed.id);
  assert.deepEqual(names, ["scripted"]);
});

test("errors", async () => {
  const chat = (body) => client.chat.completions.create({ model, messages: user("Hi"), ...body });
  await assert.rejects(chat({ temperature: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    return true;
  });
  await assert.rejects(chat({ model: "gpt-5" }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, "model_not_found");
    return true;
  });
  await assert.rejects(chat({ messages: user("Question F") }), OpenAI.InternalServerError);
  await assert.rejects(async () => {
    const stream = await chat({ messages: user("Question E"), stream: true });
    for await (const chunk of stream) assert.ok(chunk);
  }, /the script broke/);
});

test("leaving a stream cancels", async () => {
  const stream = await client.chat.completions.create({
    model,
    messages: user("Question L"),
    stream: true,
  });
  for await (const chunk of stream) {
    assert.ok(chunk);
    assert.equal((await stats()).running, 1);
    break;
  }
  while ((await stats()).running > 0) await new Promise((next) => setTimeout(next, 10));
});
