//! A headless browser that views pages as a user would: real clicks, real frames.
//!
//! It is controlled over Chromium's debugging pipe: messages in JSON, each terminated by a zero byte, on the
//! file descriptors 3 and 4. A shell opens them, so no library is needed.

use serde_json::{Value, json};
use std::env;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// The names of the program.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The time limit for a step of a test on slow machines.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time limit for the start of a browser.
const START: Duration = Duration::from_secs(30);

/// A browser with one page.
#[derive(Debug)]
pub(crate) struct Browser {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<Value>,
    session: Option<String>,
    last: u64,
    complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts the first browser that works, with a page of this size. If there is none, prints that.
    pub(crate) fn start(width: u32, height: u32) -> Option<Self> {
        let started = candidates().into_iter().find_map(|program| Self::launch(&program, width, height));
        if started.is_none() {
            eprintln!("skipped: no Chromium (looked at $CHROME and for {})", NAMES.join(", "));
        }
        started
    }

    fn launch(program: &Path, width: u32, height: u32) -> Option<Self> {
        let profile = tempfile::tempdir().expect("a directory");
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#])
            .arg(program)
            // The pages are trusted, and root has no sandbox.
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .args(["--remote-debugging-pipe", &format!("--user-data-dir={}", profile.path().display())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let (requests, output) = (child.stdin.take()?, child.stdout.take()?);
        let (sender, answers) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let parsed = message.ok().and_then(|message| serde_json::from_slice(&message).ok());
                if parsed.is_none_or(|message: Value| sender.send(message).is_err()) {
                    break;
                }
            }
        });
        let mut browser = Self {
            child,
            requests,
            answers,
            session: None,
            last: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}), START)?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        browser.session =
            browser.call("Target.attachToTarget", attach)["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", json!({}));
        browser.call("Runtime.enable", json!({}));
        browser.call("Network.enable", json!({}));
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", metrics);
        Some(browser)
    }

    /// Opens a report and waits until it is drawn.
    pub(crate) fn open(&mut self, file: &Path) {
        self.call("Page.navigate", json!({"url": format!("file://{}", file.display())}));
        let ready = "document.documentElement?.dataset.ready === 'true'";
        for _ in 0..600 {
            if self.evaluate(ready) == json!(true) {
                self.frame();
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("the page is never ready: {:?}", self.complaints);
    }

    /// Waits until the requested view is drawn.
    pub(crate) fn frame(&mut self) {
        self.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => 1)",
        );
    }

    /// Evaluates an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Returns the text of an element.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let text = self.evaluate(&format!("document.querySelector({}).innerText", json!(selector)));
        text.as_str().unwrap_or_else(|| panic!("{selector} has no text")).to_owned()
    }

    pub(crate) fn moves(&mut self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y, &json!({}));
    }

    pub(crate) fn press(&mut self, x: f64, y: f64) {
        self.mouse("mousePressed", x, y, &json!({"button": "left", "clickCount": 1}));
    }

    pub(crate) fn release(&mut self, x: f64, y: f64) {
        self.mouse("mouseReleased", x, y, &json!({"button": "left", "clickCount": 1}));
    }

    pub(crate) fn clicks(&mut self, x: f64, y: f64) {
        self.moves(x, y);
        self.press(x, y);
        self.release(x, y);
    }

    pub(crate) fn wheel(&mut self, x: f64, y: f64, down: f64) {
        self.mouse("mouseWheel", x, y, &json!({"deltaX": 0, "deltaY": down}));
    }

    /// Clicks the middle of an element.
    pub(crate) fn clicks_on(&mut self, selector: &str) {
        let middle = format!(
            "(() => {{ const box = document.querySelector({}).getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector)
        );
        let middle = self.evaluate(&middle);
        let [x, y] = [0, 1].map(|part| middle[part].as_f64().expect("a place"));
        self.clicks(x, y);
    }

    /// Presses and releases a key.
    pub(crate) fn key(&mut self, key: &str) {
        let mut down = json!({"type": "keyDown", "key": key});
        if key.chars().count() == 1 {
            down["text"] = json!(key);
        }
        if key == "Tab" {
            // Moves the focus.
            down["windowsVirtualKeyCode"] = json!(9);
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key}));
        self.frame();
    }

    /// Types into the focused element.
    pub(crate) fn types(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
        self.frame();
    }

    /// Returns the errors of the page and its requests to other hosts.
    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    fn mouse(&mut self, what: &str, x: f64, y: f64, more: &Value) {
        let mut parameters = json!({"type": what, "x": x, "y": y});
        for (name, value) in more.as_object().into_iter().flatten() {
            parameters[name] = value.clone();
        }
        self.call("Input.dispatchMouseEvent", parameters);
        self.frame();
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        let shown = parameters.to_string();
        self.ask(method, parameters, PATIENCE).unwrap_or_else(|| panic!("no answer to {method} {shown}"))
    }

    fn ask(&mut self, method: &str, parameters: Value, patience: Duration) -> Option<Value> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).and_then(|()| self.requests.flush()).ok()?;
        loop {
            let mut message = self.answers.recv_timeout(patience).ok()?;
            if message["id"] == json!(self.last) {
                return message.get_mut("result").map(Value::take);
            }
            self.hear(&message);
        }
    }

    fn hear(&mut self, message: &Value) {
        let said = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(said["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") => self.complaints.push(said["args"].to_string()),
            Some("Network.requestWillBeSent") => {
                let url = said["request"]["url"].as_str().unwrap_or_default();
                if !url.starts_with("file://") {
                    self.complaints.push(format!("asks for {url}"));
                }
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        // Closes the browser cleanly, or else kills it.
        let _ = self.ask("Browser.close", json!({}), Duration::from_secs(5));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn candidates() -> Vec<PathBuf> {
    let named = env::var_os("CHROME").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let found = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found: Vec<PathBuf> = found.filter(|program| program.is_file()).collect();
    named.into_iter().chain(found).collect()
}
