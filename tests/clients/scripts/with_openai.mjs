// OpenAI's client for Node: an answer, a stream, a response, a refusal. Prints what it got.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.KEY, maxRetries: 0 });
const messages = [{ role: "user", content: "Weigh it" }];
const whole = await client.chat.completions.create({ model: "assist", messages, max_tokens: 8 });
let streamed = "", receipt = null;
for await (const chunk of await client.chat.completions.create({ model: "assist", messages, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  receipt = chunk.receipt ?? receipt;
}
const response = await client.responses.create({ model: "assist", input: "Weigh it" });
let refused = null;
try {
  await client.chat.completions.create({ model: "none", messages });
} catch (error) {
  refused = [error.status, error.code];
}
console.log(JSON.stringify({
  text: whole.choices[0].message.content, streamed, receipt: receipt?.status,
  response: response.output_text, refused,
}));
