// Vercel's AI SDK with its three providers that fit: OpenAI-compatible, OpenAI (Responses) and
// Anthropic.
import assert from "node:assert/strict";
import test from "node:test";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const url = process.env.KURUMA_URL;
const baseURL = `${url}/v1`;
const compatible = createOpenAICompatible({ name: "kuruma", baseURL, includeUsage: true });
const openai = createOpenAI({ baseURL, apiKey: "x" });
const anthropic = createAnthropic({ baseURL, apiKey: "x" });
// Kuruma keeps no answers, so the Responses provider must hand back items, not references to them.
const providerOptions = {
  anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } },
  openai: { store: false },
};

const models = {
  "openai-compatible": (name) => compatible(name ?? "scripted"),
  "openai responses": (name) => openai.responses(name ?? "scripted"),
  "openai chat": (name) => openai.chat(name ?? "scripted"),
  anthropic: (name) => anthropic(name ?? "claude-opus-4-1"),
};

function weather(asked) {
  return tool({
    description: "The weather of a city",
    inputSchema: z.object({ city: z.string(), days: z.number().int().optional() }),
    execute: async (given) => {
      asked.push(given);
      return "18 degrees";
    },
  });
}

for (const [name, model] of Object.entries(models)) {
  const common = { maxRetries: 0, maxOutputTokens: 2000, providerOptions };

  test(`${name}: text`, async () => {
    const answer = await generateText({ model: model(), prompt: "Hi", ...common });
    assert.equal(answer.text, "Hello! How can I help?");
    assert.equal(answer.finishReason, "stop");
    assert.ok(answer.usage.outputTokens > 0);
    if (name === "anthropic" || name === "openai-compatible") {
      assert.equal(answer.reasoningText, "The user greets me.");
    }
  });

  test(`${name}: stream`, async () => {
    const answer = streamText({ model: model(), prompt: "Question U", ...common });
    let text = "";
    for await (const piece of answer.textStream) text += piece;
    assert.equal(text, "車は速い 🚗 – 100 km/h.");
    assert.equal(await answer.finishReason, "stop");
    assert.ok((await answer.usage).outputTokens > 0);
  });

  test(`${name}: tools`, async () => {
    const asked = [];
    const tools = { get_weather: weather(asked) };
    const stopWhen = stepCountIs(5);
    const whole = await generateText({
      model: model(),
      prompt: "Question W",
      tools,
      stopWhen,
      ...common,
    });
    assert.equal(whole.text, "It is 18 degrees in Kyoto.");
    const streamed = streamText({
      model: model(),
      prompt: "Question W",
      tools,
      stopWhen,
      ...common,
    });
    await streamed.consumeStream();
    assert.equal(await streamed.text, "It is 18 degrees in Kyoto.");
    const wanted = { city: "Kyoto", days: 2 };
    assert.deepEqual(asked, [wanted, wanted]);
  });

  test(`${name}: errors`, async () => {
    const failing = (prompt, given) =>
      generateText({ model: model(given), prompt, ...common });
    await assert.rejects(failing("Hi", "gpt-unknown"), (error) => {
      assert.ok(APICallError.isInstance(error));
      assert.equal(error.statusCode, 404);
      assert.match(error.message, /gpt-unknown/);
      return true;
    });
    await assert.rejects(failing("Question F"), (error) => {
      assert.equal(error.statusCode, 500);
      assert.match(error.message, /the script broke/);
      return true;
    });
    const errors = [];
    const answer = streamText({
      model: model(),
      prompt: "Question E",
      ...common,
      onError: ({ error }) => errors.push(error),
    });
    await answer.consumeStream();
    assert.ok(errors.length > 0);
  });
}
