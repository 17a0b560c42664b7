//! A registry that is slow, corrupt, or wants credentials that the document doesn't have. What runs keeps running, the status
//! says why, and recovery is by itself.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use pileus_dev::nodes::node;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Delivery, condition};
use crate::relay::{Far, forward};

/// What the registry does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It answers.
    None,
    /// It wants a login.
    Unauthorized,
    /// It answers with other bytes.
    Corrupt,
    /// It never answers.
    Silent,
}

/// Puts a registry that may have a fault before the real one, and returns what sets the fault.
async fn put_before(delivery: &mut Delivery) -> Arc<Mutex<Fault>> {
    let fault = Arc::new(Mutex::new(Fault::None));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let real = delivery.registry.host.rsplit(':').next().unwrap().parse().unwrap();
    let far = Far::Cloud(legacy::Client::builder(TokioExecutor::new()).build_http(), real);
    delivery.registry.host = listener.local_addr().unwrap().to_string();
    let seen = Arc::clone(&fault);
    let answer = move |request: Request| {
        let (far, fault) = (far.clone(), *seen.lock().unwrap());
        async move { answer(request, &far, fault).await }
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.unwrap() });
    fault
}

async fn answer(request: Request, far: &Far, fault: Fault) -> Response {
    let is_blob = request.uri().path().contains("/blobs/");
    match fault {
        Fault::Unauthorized => return StatusCode::UNAUTHORIZED.into_response(),
        Fault::Silent => return std::future::pending().await,
        Fault::Corrupt | Fault::None => {}
    }
    let Some(answer) = forward(request, far).await else { return StatusCode::BAD_GATEWAY.into_response() };
    if fault == Fault::None || !is_blob {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let mut bytes = to_bytes(body, usize::MAX).await.unwrap().to_vec();
    bytes.iter_mut().take(1).for_each(|byte| *byte ^= 1);
    Response::from_parts(head, Body::from(bytes))
}

// The commands that push and sign block a thread while the registry here answers them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_registry_at_fault_what_runs_goes_on_and_the_status_says_why() {
    let mut delivery = Delivery::new().await;
    let fault = put_before(&mut delivery).await;
    let first = delivery.release("first", "stable").await;
    delivery.apply(delivery.spec("nothing")).await;
    let run = delivery.world.start_with_resources("store").await;
    let active = delivery.active(&first).await["active"]["release"].clone();
    delivery.initialised(&["a", "b"]).await;
    let second = delivery.release("second", "next").await;
    let rows = [
        (Fault::Unauthorized, "stable", "refuses access to providers/unruly"),
        (Fault::Corrupt, "next", "is corrupt: its bytes have the digest"),
        (Fault::Silent, "stable", "took longer than"),
    ];
    for (index, (kind, tag, why)) in rows.into_iter().enumerate() {
        *fault.lock().unwrap() = kind;
        let mut spec = delivery.spec("nothing");
        spec["source"]["image"] = json!(delivery.image(tag));
        // The same release, and a document that is considered again.
        spec["source"]["interval"] = json!(format!("{}s", 11 + index));
        delivery.apply(spec).await;
        let says_why = |status: &Value| {
            let (degraded, message) = condition(status, "Degraded");
            degraded == "True" && message.contains(why)
        };
        let status = delivery.until(why, says_why).await;
        println!("{kind:?}: {}", condition(&status, "Degraded").1);
        assert_eq!((&status["active"]["release"], condition(&status, "Ready").0), (&active, "True"));
        let name = format!("late-{index}");
        delivery.world.cloud.create(json!({"name": name})).await;
        delivery.world.register([node(&name)]).await;
        delivery.initialised(&[&name]).await;
        if kind == Fault::Corrupt {
            // It was never active.
            delivery.apply(delivery.spec("nothing")).await;
        }
        *fault.lock().unwrap() = Fault::None;
        delivery.until("recovered", |status| condition(status, "Degraded").0 == "False").await;
    }
    let mut spec = delivery.spec("nothing");
    spec["source"]["image"] = json!(delivery.image("next"));
    delivery.apply(spec).await;
    delivery.active(&second).await;
    assert!(run.is_well().await);
    assert!(run.stop().await.success());
}
