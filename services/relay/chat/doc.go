// Package chat speaks with a chat model's endpoint as OpenAI's chat completions have
// it, which many servers imitate: the request, the tools that it offers the model, and
// the answer, as a stream or whole.
//
// It does no I/O, and must not know where the endpoint is or what holds the key. Text of
// a model is text and nothing more: what it asks to happen counts only where it calls a
// tool, and even then it asks.
package chat
