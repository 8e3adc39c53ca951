package a2a

import (
	"encoding/json"
	"fmt"
	"strings"
)

// The members are those of both versions: 1.0 tells parts and results apart by which
// member is there, 0.3 by kind. States and roles differ in spelling only.

type wireMessage struct {
	Kind      string                     `json:"kind,omitempty"`
	MessageID string                     `json:"messageId"`
	ContextID string                     `json:"contextId,omitempty"`
	Role      string                     `json:"role"`
	Parts     []wirePart                 `json:"parts"`
	Metadata  map[string]json.RawMessage `json:"metadata,omitempty"`
}

func (m *wireMessage) byAgent() bool {
	return m != nil && (m.Role == "ROLE_AGENT" || m.Role == "agent")
}

type wirePart struct {
	Kind string          `json:"kind,omitempty"`
	Text *string         `json:"text,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// A file: url, filename and mediaType in 1.0, file in 0.3.
	URL       string    `json:"url,omitempty"`
	Filename  string    `json:"filename,omitempty"`
	MediaType string    `json:"mediaType,omitempty"`
	File      *wireFile `json:"file,omitempty"`
}

type wireFile struct {
	URI      string `json:"uri"`
	Name     string `json:"name"`
	MimeType string `json:"mimeType"`
}

type wireStatus struct {
	State   string       `json:"state"`
	Message *wireMessage `json:"message"`
}

type wireArtifact struct {
	ArtifactID string     `json:"artifactId"`
	Parts      []wirePart `json:"parts"`
}

type wireTask struct {
	ID        string         `json:"id"`
	Status    wireStatus     `json:"status"`
	Artifacts []wireArtifact `json:"artifacts"`
	History   []wireMessage  `json:"history"`
}

type wireStatusUpdate struct {
	TaskID string     `json:"taskId"`
	Status wireStatus `json:"status"`
}

type wireArtifactUpdate struct {
	TaskID   string       `json:"taskId"`
	Artifact wireArtifact `json:"artifact"`
	Append   bool         `json:"append"`
}

// result is one result of a response or of a stream; exactly one member is set.
type result struct {
	Task           *wireTask           `json:"task"`
	Message        *wireMessage        `json:"message"`
	StatusUpdate   *wireStatusUpdate   `json:"statusUpdate"`
	ArtifactUpdate *wireArtifactUpdate `json:"artifactUpdate"`
}

// Error is a failure that the agent reports by JSON-RPC.
type Error struct{ Code int }

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("the agent reports error %d", e.Code) }

// Codes of errors that say what an agent doesn't speak.
const (
	codeMethodNotFound = -32601
	codeUnsupported    = -32004
	codeVersion        = -32009
)

// NotSpoken reports that the agent knows neither the method nor the version.
func (e *Error) NotSpoken() bool { return e.Code == codeMethodNotFound || e.Code == codeVersion }

// NotStreamed reports that the agent may answer whole where it doesn't as a stream.
func (e *Error) NotStreamed() bool { return e.Code == codeUnsupported || e.Code == codeMethodNotFound }

func parseResponse(body []byte) (result, error) {
	var w struct {
		Result json.RawMessage `json:"result"`
		Error  *struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(body, &w); err != nil || w.Error == nil && len(w.Result) == 0 {
		return result{}, errAnswer
	}
	if w.Error != nil {
		return result{}, &Error{Code: w.Error.Code}
	}
	return parseResult(w.Result)
}

func parseResult(raw json.RawMessage) (result, error) {
	var kind struct {
		Kind string `json:"kind"`
		// A bare task of 1.0, the result of GetTask, has these and no kind.
		ID     string          `json:"id"`
		Status json.RawMessage `json:"status"`
	}
	if json.Unmarshal(raw, &kind) != nil {
		return result{}, errAnswer
	}
	var r result
	var into any = &r
	switch {
	case kind.Kind == "task", kind.Kind == "" && kind.ID != "" && len(kind.Status) > 0:
		r.Task = &wireTask{}
		into = r.Task
	case kind.Kind == "message":
		r.Message = &wireMessage{}
		into = r.Message
	case kind.Kind == "status-update":
		r.StatusUpdate = &wireStatusUpdate{}
		into = r.StatusUpdate
	case kind.Kind == "artifact-update":
		r.ArtifactUpdate = &wireArtifactUpdate{}
		into = r.ArtifactUpdate
	}
	if json.Unmarshal(raw, into) != nil {
		return result{}, errAnswer
	}
	return r, nil
}

// State is how far a task is.
type State uint8

// The states. Open ones go on by themselves, the others don't.
const (
	Open State = iota
	Completed
	InputRequired
	AuthRequired
	Failed
	Rejected
	Canceled
)

func parseState(s string) State {
	switch strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s, "TASK_STATE_"), "_", "-")) {
	case "completed":
		return Completed
	case "input-required":
		return InputRequired
	case "auth-required":
		return AuthRequired
	case "failed":
		return Failed
	case "rejected":
		return Rejected
	case "canceled":
		return Canceled
	}
	return Open // submitted, working, and what is not known yet
}
